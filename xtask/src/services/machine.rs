//! What this room needs from the machine: programs, users, processes, ports, files.

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::Failure;

/// A failure with a text.
pub(super) fn failed(text: impl Into<String>) -> Failure {
    Failure::Failed(text.into())
}

/// Makes a folder and those above it.
pub(super) fn folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| failed(format!("{} cannot be made: {error}", path.display())))
}

/// Writes a file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| failed(format!("{} cannot be written: {error}", path.display())))
}

/// Waits until nobody else has the lock file; ours until it is dropped.
pub(super) fn lock(path: &Path) -> Result<File, Failure> {
    let locked = File::create(path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error: io::Error| failed(format!("{} cannot be locked: {error}", path.display())))
}

/// A program on the `PATH`, or in one of the folders.
pub(super) fn program(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = folders.iter().cloned().chain(env::split_paths(&path));
    places.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs a command to its end and gives what it printed; when it fails, that is in the text of the failure.
pub(super) fn run(command: &mut Command) -> Result<String, Failure> {
    let program = Path::new(command.get_program()).display().to_string();
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let shown = [vec![program], arguments].concat().join(" ");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(format!("`{shown}` could not be started: {error}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = [text(&output.stdout), text(&output.stderr)].join("\n");
    Err(failed(format!("`{shown}` ended with {}: {}", output.status, said.trim())))
}

/// Whether we are root.
pub(super) fn is_root() -> bool {
    id(&["-u"]).is_ok_and(|id| id == 0)
}

/// What `id` says, as a number.
fn id(arguments: &[&str]) -> Result<u32, Failure> {
    let text = run(Command::new("id").args(arguments))?;
    text.parse().map_err(|_| failed(format!("`id {}` said `{text}`, which is no number", arguments.join(" "))))
}

/// Installs packages when the machine is ours to change: a Debian on which we are root.
pub(super) fn install(packages: &[&str]) -> Result<(), Failure> {
    let missing = packages.join(" ");
    if !is_root() || program("apt-get", &[]).is_none() {
        return Err(failed(format!("it is not installed; install it (Debian: apt-get install {missing})")));
    }
    eprintln!("services: installing {missing}");
    let quiet =
        |arguments: &[&str]| run(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"));
    quiet(&["update", "-qq"])?;
    quiet(&[&["install", "-qq", "-y", "--no-install-recommends"], packages].concat())?;
    Ok(())
}

/// Who runs the servers: whoever we are, or when we are root somebody else, since PostgreSQL and PgBouncer refuse to
/// run as root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runner(Option<(u32, u32)>);

impl Runner {
    /// The user that PostgreSQL's package made, or nobody.
    pub(super) fn find() -> Result<Runner, Failure> {
        if !is_root() {
            return Ok(Runner(None));
        }
        let numbers = |name| Ok((id(&["-u", name])?, id(&["-g", name])?));
        numbers("postgres").or_else(|_: Failure| numbers("nobody")).map(|numbers| Runner(Some(numbers)))
    }

    /// A command that this user runs, in a folder that it may be in.
    pub(super) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/");
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }

    /// A folder of this user's own: `name` under `home`, or under the folder for temporary files when `home` is where
    /// this user may not go, such as below root's own folder.
    pub(super) fn folder(self, home: &Path, name: &str) -> Result<PathBuf, Failure> {
        let Some((user, group)) = self.0 else {
            let path = home.join(name);
            return folder(&path).map(|()| path);
        };
        let path = if self.reaches(home) {
            home.join(name)
        } else {
            // The whole path is in its name, so that two trees do not share a server.
            let flat = home.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            env::temp_dir().join(format!("hapax{flat}-{name}"))
        };
        folder(&path)?;
        let changed = std::os::unix::fs::chown(&path, Some(user), Some(group));
        changed.map_err(|error| failed(format!("{} cannot be given away: {error}", path.display())))?;
        Ok(path)
    }

    fn reaches(self, folder: &Path) -> bool {
        let mut command = self.command(Path::new("test"));
        command.arg("-x").arg(folder).status().is_ok_and(|status| status.success())
    }
}

/// A port on the loopback that is free now. Whoever binds it later may still lose a race: start again then.
pub(super) fn free_port() -> Result<u16, Failure> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    port.map(|address| address.port()).map_err(|error| failed(format!("no port is free on 127.0.0.1: {error}")))
}

/// The process in the first line of a pid file, if it runs and `mark` is among its arguments: the number alone may be
/// another's by now.
pub(super) fn process(pid_file: &Path, mark: &Path) -> Option<u32> {
    let text = fs::read_to_string(pid_file).ok()?;
    let pid: u32 = text.lines().next()?.trim().parse().ok()?;
    let arguments = match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => run(Command::new("ps").args(["-o", "args=", "-p", &pid.to_string()])).ok()?,
    };
    arguments.contains(&*mark.to_string_lossy()).then_some(pid)
}

/// Asks a process to end.
pub(super) fn terminate(pid: u32) -> Result<(), Failure> {
    // The shell's own `kill`: the program of that name is not everywhere.
    run(Command::new("sh").args(["-c", &format!("kill -TERM {pid}")])).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_says_what_it_said() {
        let Err(Failure::Failed(why)) = run(Command::new("sh").args(["-c", "echo gone >&2; exit 3"])) else {
            panic!("it must fail")
        };
        assert!(why.contains("exit status: 3") && why.ends_with("gone"), "{why}");
    }

    #[test]
    fn a_number_that_another_process_has_by_now_is_not_ours() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("pid");
        fs::write(&file, format!("{}\nmore\n", std::process::id())).expect("written");
        let own = env::current_exe().expect("a path");
        assert_eq!(process(&file, Path::new(own.file_name().expect("a name"))), Some(std::process::id()));
        assert_eq!(process(&file, Path::new("/nowhere/else")), None);
        assert_eq!(process(&folder.path().join("none"), &own), None);
    }

    #[test]
    fn programs_are_found_in_folders_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("sh"), "").expect("written");
        assert_eq!(program("sh", &[folder.path().into()]), Some(folder.path().join("sh")));
        assert!(program("sh", &[]).is_some());
        assert_eq!(program("no-such-program", &[]), None);
    }
}
