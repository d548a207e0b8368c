//! Two hosts on one store: each with a name and a network of its own, in which nothing can be reached but the store.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::place::{Place, Wire, server};
use crate::cli::{HAPAX, blocks};
use crate::exec::{Running, wait_for};

const README: &str = include_str!("../../../../../examples/nightly-backup/README.md");

/// How often the cut is made.
const ROUNDS: usize = 10;

/// A host: what it is called, its way to the store, and how a process is put on it.
struct Host {
    name: &'static str,
    wire: Wire,
    socket: PathBuf,
    apart: &'static [&'static str],
}

/// How a process gets a name and a network of its own here: as root, else as root of a user namespace. Where neither is
/// allowed the hosts are processes of one, which share all but their way to the store.
fn apart() -> &'static [&'static str] {
    const WAYS: [&[&str]; 2] =
        [&["unshare", "--net", "--uts"], &["unshare", "--user", "--map-root-user", "--net", "--uts"]];
    let works = |way: &&&[&str]| {
        let mut tried = Command::new(way[0]);
        tried.args(&way[1..]).args(["sh", "-c", "echo x > /proc/sys/kernel/hostname"]);
        tried.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    WAYS.iter().find(works).copied().unwrap_or(&[])
}

impl Host {
    fn new(name: &'static str, folder: &Path) -> Self {
        let (wire, socket) = (Wire::new(), folder.join(name));
        std::fs::create_dir(&socket).expect("a new folder");
        wire.socket(&socket);
        Self { name, wire, socket, apart: apart() }
    }

    /// The store as this host reaches it.
    fn url(&self, place: &Place) -> String {
        let known = super::place::options(&server());
        let (user, database) = (known.get_username(), known.get_database().unwrap_or("postgres"));
        place.at(&format!("postgres://{user}@localhost/{database}?host={}&port=5432", self.socket.display()))
    }

    /// A shell on this host, which reads the line.
    fn shell(&self, place: &Place, line: &str) -> Command {
        let rename = if self.apart.is_empty() { "" } else { "echo $NAME > /proc/sys/kernel/hostname; " };
        let words = [self.apart, &["/bin/sh", "-ec"]].concat();
        let mut shell = Command::new(words[0]);
        shell.args(&words[1..]).arg(format!("{rename}{line}"));
        let programs = Path::new(HAPAX).parent().expect("a folder").display();
        shell.env_clear().env("PATH", format!("{programs}:/usr/bin:/bin:/usr/sbin")).env("NAME", self.name);
        shell.env("HAPAX_STORE_URL", self.url(place)).current_dir(place.cli.folder());
        shell.stdin(Stdio::null());
        shell
    }
}

/// Puts the script of the example there, and gives its command with the program's name and options before it.
fn nightly_backup(place: &Place, options: &str) -> String {
    let [script, first, _, _] = blocks(README, "sh").try_into().expect("four blocks");
    let folder = place.cli.folder();
    let script =
        script.replacen("set -eu\n", "set -eu\n[ ! -e slow ] || { echo $$ > begun; sleep 79 & sleep 78; }\n", 1);
    std::fs::write(folder.join("backup.sh"), format!("{script}\necho \"$NAME\" >> ran\n")).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.join("backup.sh"), mode).expect("changed");
    for name in ["data", "backups"] {
        std::fs::create_dir(folder.join(name)).expect("made");
    }
    std::fs::write(folder.join("data/file.txt"), "precious").expect("written");
    let line = first.lines().last().expect("a command");
    let (program, command) = line.split_once(" --once-per").expect("the command of the example");
    format!("exec {program} {options} --once-per{command}")
}

#[test]
fn two_hosts_back_up_once_per_night_and_one_that_is_cut_off_stops_first() {
    let place = Place::new();
    let hosts = ["hapax-one", "hapax-two"].map(|name| Host::new(name, place.cli.folder()));
    let line = nightly_backup(&place, "--scope fleet --ttl 2s -E 3");
    let folder = place.cli.folder();
    for round in 0..ROUNDS {
        let _ = std::fs::remove_file(folder.join("ran"));
        let calls = hosts.each_ref().map(|host| Running(host.shell(&place, &line).spawn().expect("it starts")));
        let mut codes = calls.map(|mut call| call.code());
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(3)], "round {round}");
        assert_eq!(ran(folder).len(), 1, "round {round}");
        forget(&place);
        cut_off(&place, (&hosts[round % 2], &hosts[(round + 1) % 2]), &line, round);
        forget(&place);
    }
}

/// One host is cut off in the middle of its backup: it stops it, and only then the other makes it.
fn cut_off(place: &Place, (first, second): (&Host, &Host), line: &str, round: usize) {
    let folder = place.cli.folder();
    let (slow, begun) = (folder.join("slow"), folder.join("begun"));
    let _ = std::fs::remove_file(folder.join("ran"));
    let _ = std::fs::remove_file(&begun);
    std::fs::write(&slow, "").expect("written");
    let mut lost = Running(first.shell(place, line).stderr(Stdio::piped()).spawn().expect("it starts"));
    wait_for("the backup begins", || std::fs::read_to_string(&begun).is_ok_and(|text| text.ends_with('\n')));
    let group = std::fs::read_to_string(&begun).expect("written").trim().to_owned();
    std::fs::remove_file(&slow).expect("there");
    first.wire.faults().blackhole();
    // It says first whether anything of the other's is still there.
    let watch = format!("(kill -0 -{group} 2>/dev/null && echo alive || echo clear) > found");
    let script = std::fs::read_to_string(folder.join("backup.sh")).expect("there");
    std::fs::write(folder.join("backup.sh"), script.replacen("set -eu\n", &format!("set -eu\n{watch}\n"), 1))
        .expect("written");
    let next = second.shell(place, line).output().expect("it runs");
    std::fs::write(folder.join("backup.sh"), script).expect("written");
    assert_eq!(next.status.code(), Some(0), "round {round}: {next:?}");
    assert_eq!(std::fs::read_to_string(folder.join("found")).expect("written").trim(), "clear", "round {round}");
    assert_eq!(lost.code(), Some(76), "round {round}");
    assert_eq!(ran(folder), [second.name], "round {round}");
    first.wire.faults().mend();
    if !second.apart.is_empty() {
        let shown = place.text(&["once", "show", "backup"]);
        assert!(shown.contains(second.name), "it says which host did it: {shown}");
    }
}

/// Who made a backup.
fn ran(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("ran")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn forget(place: &Place) {
    let listed = place.text(&["once", "list"]);
    let day = listed.split_whitespace().find(|word| word.starts_with("20") && word.len() == 10).expect("a day");
    place.text(&["once", "forget", "backup", day]);
}
