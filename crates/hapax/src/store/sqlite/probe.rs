//! Where the file lies and what its settings are worth: looked at, never assumed.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::writer::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{HealthVerdict as Verdict, Setting};

/// Free room below which a warning is due, in bytes.
const FREE_BYTES_MIN: u64 = 64 * 1_048_576;

/// Network file systems and their kin, by the magic number that `statfs` gives: shared memory does not reach from one
/// host to the next, and write-ahead logging stands on it.
const NETWORK: [(u64, &str); 12] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x5346_414F, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x7375_7245, "Coda"),
    (0x4750_4653, "GPFS"),
    (0x7461_636F, "OCFS2"),
];

/// Common local file systems, for people.
const LOCAL: [(u64, &str); 8] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683E, "Btrfs"),
    (0x2FC1_2FC1, "ZFS"),
    (0x0102_1994, "tmpfs"),
    (0x794C_7630, "overlay"),
    (0xF2F5_2010, "F2FS"),
    (0xCA45_1A4E, "bcachefs"),
];

/// The file's whole path, once its folder is known to exist on a file system that can keep the promise.
pub(super) fn place(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    let text = path.to_string_lossy();
    if text.is_empty() || text == ":memory:" || text.starts_with("file:") {
        let mend = "name a file, or take the store `memory:` (`Hapax::memory()`)";
        let what = format!("`{shown}` is no file: each connection would have a database of its own");
        return Err(Error::invalid("SQLite path", what, mend));
    }
    if path.is_dir() {
        return Err(Error::invalid("SQLite path", format!("`{shown}` is a folder"), "name a file in it"));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().map_err(|cause| {
        let what = format!("{shown}: its folder cannot be reached ({cause}); make it first");
        Error::did_not_happen(ErrorKind::Unreachable, what).with_source(cause)
    })?;
    // A link is followed, so that all who come by different names agree on the log and shared memory beside the file.
    let file = match path.canonicalize() {
        Ok(file) => file,
        Err(_) => folder.join(path.file_name().unwrap_or_default()),
    };
    refuse_network(&file)?;
    Ok(file)
}

fn refuse_network(file: &Path) -> Result<()> {
    let magic = magic_of(file);
    let Some((_, name)) = NETWORK.iter().find(|(known, _)| Some(*known) == magic) else { return Ok(()) };
    let what = format!(
        "{}: the file lies on {name}. A SQLite store protects the processes of one host and needs their shared memory, \
         which a network file system does not have; name a file on a local disk, or use a database server",
        file.display()
    );
    Err(Error::did_not_happen(ErrorKind::Unusable, what))
}

/// Which file a path leads to: device and inode.
pub(super) fn identity(file: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(file).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// A file that was moved, deleted or replaced while it was open still takes writes, and nobody will ever see them; two
/// programs would hold one lock.
pub(super) fn still_there(file: &Path, was: Option<(u64, u64)>) -> Result<()> {
    if was.is_some() && identity(file) == was {
        return Ok(());
    }
    let what = "the file was moved, deleted or replaced while it was in use; open the store again";
    Err(Error::did_not_happen(ErrorKind::Unusable, format!("{}: {what}", file.display())))
}

/// The number by which the kernel names the file's file system.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn magic_of(file: &Path) -> Option<u64> {
    let at = if file.exists() { Some(file) } else { file.parent() };
    let stat = rustix::fs::statfs(at?).ok()?;
    // Signed on some machines; what counts is the 32 bits.
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a bit pattern, not a quantity")]
    Some(u64::from(stat.f_type as u32))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn magic_of(_: &Path) -> Option<u64> {
    None
}

/// What stands in the way of opening a file for writing, as far as the file system tells.
pub(super) fn why_not_writable(file: &Path) -> Option<String> {
    use rustix::fs::{Access, access};
    let folder = file.parent()?;
    if file.exists() && access(file, Access::WRITE_OK).is_err() {
        return Some(format!("{}: this user may not write the file; change its owner or mode", file.display()));
    }
    if access(folder, Access::WRITE_OK).is_err() {
        let what = "this user may not write the folder, where SQLite keeps its log beside the file";
        return Some(format!("{}: {what}; change the folder's owner or mode", file.display()));
    }
    None
}

/// The boot that the lease clock counts from.
pub(super) fn boot_id() -> Option<String> {
    let read = |path: &str| {
        let mut text = String::new();
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)).ok()?;
        Some(text.trim().to_owned())
    };
    read("/proc/sys/kernel/random/boot_id").or_else(boot_id_elsewhere).filter(|id| !id.is_empty())
}

/// Systems without `/proc` tell it by a variable of the kernel.
fn boot_id_elsewhere() -> Option<String> {
    ["kern.bootsessionuuid", "kern.boottime"].into_iter().find_map(|name| {
        let told = std::process::Command::new("sysctl").args(["-n", name]).output().ok()?;
        told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
    })
}

/// Which process holds the write lock of a file in WAL mode, if the kernel tells: byte 120 of its shared memory.
pub(super) fn lock_holder(file: &Path) -> Option<u32> {
    let mut shared = file.as_os_str().to_owned();
    shared.push("-shm");
    let inode = std::fs::metadata(Path::new(&shared)).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let holder = |line: &str| -> Option<u32> {
        // 1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 120 120
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", _, "WRITE", pid, place, first, last] = words[..] else { return None };
        let ours = place.rsplit(':').next()?.parse() == Ok(inode);
        let span = first.parse::<u64>().ok()?..=last.parse().unwrap_or(u64::MAX);
        (ours && span.contains(&120)).then(|| pid.parse().ok())?
    };
    // Another container's process has no number here.
    locks.lines().find_map(holder).filter(|pid| *pid > 0)
}

/// What the promise rests on, asked of the very connection that writes.
pub(super) fn settings(core: &Core) -> rusqlite::Result<Vec<Setting>> {
    let (connection, file) = (&core.connection, core.file.as_path());
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    let page_size: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let foreign_keys: bool = connection.pragma_query_value(None, "foreign_keys", |row| row.get(0))?;
    let flag = |good: bool, bad: Verdict| if good { Verdict::Good } else { bad };
    Ok(vec![
        Setting {
            name: "journal_mode",
            verdict: flag(mode == "wal", Verdict::Weak),
            note: "readers go on beside the writer only in WAL mode".to_owned(),
            value: mode,
        },
        Setting {
            name: "synchronous",
            value: match synchronous {
                0 => "off".to_owned(),
                1 => "normal".to_owned(),
                2 => "full".to_owned(),
                _ => "extra".to_owned(),
            },
            verdict: flag(synchronous >= 2, Verdict::Broken),
            note: "below `full` a power cut may lose what was already answered".to_owned(),
        },
        writable(connection)?,
        file_system(file, still_there(file, core.identity).is_ok()),
        free_space(file),
        Setting {
            name: "page_size",
            value: page_size.to_string(),
            verdict: Verdict::Good,
            note: "bytes; chosen when the file was made".to_owned(),
        },
        Setting {
            name: "foreign_keys",
            value: foreign_keys.to_string(),
            verdict: Verdict::Good,
            note: "whether effects in this file obey the foreign keys of the user's tables".to_owned(),
        },
        Setting {
            name: "boot_id",
            value: boot_id().unwrap_or_else(|| "unknown".to_owned()),
            verdict: flag(boot_id().is_some(), Verdict::Weak),
            note: "if unknown, leases from before a restart of the machine end late".to_owned(),
        },
    ])
}

fn writable(connection: &Connection) -> rusqlite::Result<Setting> {
    let read_only = connection.is_readonly("main")?;
    Ok(Setting {
        name: "writable",
        value: (!read_only).to_string(),
        verdict: if read_only { Verdict::Broken } else { Verdict::Good },
        note: "this user must be able to write the file and its folder".to_owned(),
    })
}

fn file_system(file: &Path, still_there: bool) -> Setting {
    let magic = magic_of(file);
    let known = |list: &[(u64, &'static str)]| list.iter().find(|(m, _)| Some(*m) == magic).map(|(_, name)| *name);
    let (value, verdict) = match (known(&NETWORK), known(&LOCAL), magic) {
        (Some(name), _, _) => (name.to_owned(), Verdict::Broken),
        (None, Some("tmpfs"), _) => ("tmpfs".to_owned(), Verdict::Weak),
        (None, Some(name), _) => (name.to_owned(), Verdict::Good),
        (None, None, Some(magic)) => (format!("{magic:#x}"), Verdict::Good),
        (None, None, None) => ("unknown".to_owned(), Verdict::Weak),
    };
    let note = "must be a disk of this host; a tmpfs is empty after a restart".to_owned();
    if still_there {
        return Setting { name: "file_system", value, verdict, note };
    }
    let note = "the file was moved, deleted or replaced while it is in use; open the store again".to_owned();
    Setting { name: "file_system", value, verdict: Verdict::Broken, note }
}

fn free_space(file: &Path) -> Setting {
    let free = file.parent().and_then(|folder| rustix::fs::statvfs(folder).ok());
    let free = free.map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    Setting {
        name: "free_space",
        value: free.map_or_else(|| "unknown".to_owned(), |bytes| format!("{} MiB", bytes / 1_048_576)),
        verdict: if free.is_none_or(|bytes| bytes < FREE_BYTES_MIN) { Verdict::Weak } else { Verdict::Good },
        note: "nothing is lost on a full disk, but nothing new can be taken either".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_have_a_place() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(place(&folder.path().join("a.db")).expect("legal").file_name(), Some("a.db".as_ref()));
        for odd in [":memory:", "", "file:a.db?mode=memory"] {
            let error = place(Path::new(odd)).expect_err("no file");
            assert!(error.to_string().contains("memory:"), "the mend is named: {error}");
        }
        let error = place(folder.path()).expect_err("a folder");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let error = place(&folder.path().join("none/a.db")).expect_err("no folder");
        assert_eq!(error.kind(), ErrorKind::Unreachable);
    }

    #[test]
    fn the_same_file_by_a_link_is_the_same_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("a.db"), folder.path().join("link.db"));
        std::fs::write(&file, "").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        assert_eq!(place(&link).expect("legal"), place(&file).expect("legal"));
    }
}
