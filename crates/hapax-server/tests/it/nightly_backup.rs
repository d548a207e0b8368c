//! `examples/nightly-backup/`: its README, followed word by word.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::cli::{Cli, HAPAX, Ran, blocks, ran};

const README: &str = include_str!("../../../../examples/nightly-backup/README.md");

#[test]
fn a_newcomer_backs_up_a_folder_once_per_day() {
    let cli = Cli::new();
    let [script, first, again, look] = blocks(README, "sh").try_into().expect("four blocks");
    std::fs::write(cli.folder().join("backup.sh"), script).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(cli.folder().join("backup.sh"), mode).expect("changed");
    let programs = std::path::Path::new(HAPAX).parent().expect("a folder").display();
    let shell = |lines: &str| -> Ran {
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().env("HOME", cli.folder()).env("PATH", format!("{programs}:/usr/bin:/bin"));
        shell.current_dir(cli.folder()).args(["-ec", lines]);
        ran(shell, "")
    };
    let backup = shell(first);
    assert_eq!(backup.code, 0, "{backup:?}");
    assert!(backup.out.starts_with("wrote backups/backup-20") && backup.err.contains("this one host"), "{backup:?}");
    let archives = || std::fs::read_dir(cli.folder().join("backups")).expect("there").count();
    assert_eq!(archives(), 1);
    let skipped = shell(again);
    assert_eq!((skipped.code, skipped.out.as_str()), (0, ""));
    assert!(skipped.err.contains("is done: ") && skipped.err.contains("not run again"), "{skipped:?}");
    assert_eq!(archives(), 1);
    let known = shell(look);
    assert!(known.out.contains("done") && known.out.contains("\"files\":2"), "{known:?}");
    let listed = shell("tar -tzf backups/*.tar.gz");
    assert!(listed.out.contains("file.txt"), "{listed:?}");
    let cron = blocks(README, "crontab")[0].split_once("&& ").expect("a command").1;
    let by_cron = shell(cron);
    assert_eq!((by_cron.code, by_cron.out.as_str(), by_cron.err.as_str()), (0, "", ""));
}
