//! What is different when somebody watches: drawn errors, colours, bars.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::cli::{Cli, bare};

/// Runs a command whose stderr, and if wanted stdout, is a terminal; gives its exit code and what was shown.
fn watched(mut command: Command, stdout_too: bool) -> (Option<i32>, String) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&screen).expect("ours");
    unlockpt(&screen).expect("ours");
    let name = ptsname(&screen, Vec::new()).expect("it has a name");
    let side = || -> File {
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        OpenOptions::new().read(true).write(true).open(path).expect("the program's side")
    };
    let stdout = if stdout_too { Stdio::from(side()) } else { Stdio::null() };
    let mut child = command.stdin(Stdio::null()).stdout(stdout).stderr(side()).spawn().expect("it starts");
    // The command holds its side as long as it lives, and the screen would never end.
    drop(command);
    let mut shown = Vec::new();
    // It ends with an error once the last of the other side is closed.
    let _ = File::from(screen).read_to_end(&mut shown);
    (child.wait().expect("it ends").code(), String::from_utf8_lossy(&shown).into_owned())
}

fn command(cli: &Cli, arguments: &[&str]) -> Command {
    let mut command = bare(cli.folder());
    command.env("HAPAX_STORE_URL", cli.url()).env("TERM", "xterm").args(arguments);
    command
}

#[test]
fn errors_are_drawn_in_colour_unless_that_is_not_wanted() {
    let cli = Cli::new();
    let (code, shown) = watched(command(&cli, &["job", "push", "k", "{"]), true);
    assert!(code == Some(2) && shown.contains("payload not JSON") && shown.contains("help:"), "{shown}");
    assert!(shown.contains("\u{1b}[3"), "{shown:?}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut plain = command(&cli, &["job", "push", "k", "{"]);
        plain.env(name, value);
        let (code, shown) = watched(plain, true);
        assert!(code == Some(2) && shown.contains("payload not JSON"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{name}: {shown:?}");
    }
}

#[test]
fn verbs_work_on_a_terminal_as_without() {
    let cli = Cli::new();
    for verb in [&["job", "push", "k"][..], &["job", "list"], &["queue", "list", "-v"], &["doctor"], &["version"]] {
        let (code, shown) = watched(command(&cli, verb), true);
        assert_eq!(code, Some(0), "{verb:?}: {shown}");
    }
}

#[test]
fn long_work_has_a_bar_where_somebody_sees_it() {
    let cli = Cli::new();
    let lines: Vec<String> = (0..3_000).map(|n| n.to_string()).collect();
    std::fs::write(cli.folder().join("lines"), lines.join("\n") + "\nbad\n").expect("written");
    let (code, shown) = watched(command(&cli, &["job", "push", "k", "--lines", "lines"]), false);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains('━') && shown.contains('%'), "{shown:?}");
    assert!(shown.contains("line 3001: payload not JSON"), "{shown:?}");
    assert!(shown.contains("3001 lines: 3000 enqueued, 0 existed, 1 failed"), "{shown:?}");
}
