//! `docs/recipes/`: what they tell people to type, run as it stands there. Only paths of the machine and the user's own
//! program are put in the place of those that the recipe names.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cli::{Cli, HAPAX, Ran, blocks, ran};
use crate::exec::{Running, wait_for};

/// A folder with a store and with the user's own program, which is called as the recipe calls it.
struct Place {
    cli: Cli,
}

impl Place {
    fn new(program: &str, script: &str) -> Self {
        let cli = Cli::new();
        cli.text(&["migrate"]);
        let path = cli.folder().join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("changed");
        Self { cli }
    }

    /// The line in a shell, with the program and the user's own in `PATH`, and with these paths replaced.
    fn shell(&self, line: &str, replaced: &[(&str, &str)]) -> Command {
        let line = replaced.iter().fold(line.to_owned(), |line, (from, to)| {
            assert!(line.contains(from), "{from} is not in: {line}");
            line.replace(from, to)
        });
        let folder = self.cli.folder();
        let programs = std::path::Path::new(HAPAX).parent().expect("a folder").display();
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().env("HAPAX_STORE_URL", self.cli.url());
        shell.env("PATH", format!("{}:{programs}:/usr/bin:/bin", folder.display()));
        shell.current_dir(folder).args(["-ec", &line]);
        shell
    }

    /// Runs the line twice at once and then once more: the user's program runs once, and nobody complains.
    fn runs_once(&self, line: &str, replaced: &[(&str, &str)]) {
        let mut calls = [(); 2].map(|()| {
            let call =
                self.shell(line, replaced).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            Running(call.expect("it starts"))
        });
        assert_eq!(calls.each_mut().map(Running::code), [Some(0); 2], "{line}");
        assert_eq!(ran(self.shell(line, replaced), "").code, 0, "{line}");
        assert_eq!(
            std::fs::read_to_string(self.cli.folder().join("ran")).expect("it ran").lines().count(),
            1,
            "{line}"
        );
    }
}

#[test]
fn the_crontab_of_two_hosts() {
    let recipe = include_str!("../../../../docs/recipes/cron-on-two-hosts.md");
    let crontab = blocks(recipe, "crontab")[0];
    let (settings, lines): (Vec<&str>, Vec<&str>) =
        crontab.lines().partition(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    assert!(settings.contains(&"PATH=/usr/local/bin:/usr/bin:/bin"), "cron's own PATH does not find hapax");
    let line = lines[0].split_whitespace().skip(5).collect::<Vec<_>>().join(" ");
    let place = Place::new("backup", "echo $HAPAX_PERIOD >> ran");
    let own = [("/usr/local/bin/backup", "backup")];
    place.runs_once(&line, &own);
    let silent = ran(place.shell(&line, &own), "");
    assert_eq!((silent.out.as_str(), silent.err.as_str()), ("", ""), "cron would mail it");
    let fleet = ran(place.shell(&line, &[own[0], ("--scope host", "--scope fleet")]), "");
    assert_eq!(fleet.code, 78, "a host with a wrong address does not run on its own: {fleet:?}");
}

#[test]
fn the_service_of_the_timer() {
    let recipe = include_str!("../../../../docs/recipes/systemd-timer.md");
    let service = blocks(recipe, "ini")[0];
    let line = service.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let place = Place::new("report", "echo $HAPAX_PERIOD >> ran");
    place.runs_once(line, &[("/usr/local/bin/hapax", HAPAX), ("/usr/local/bin/report", "report")]);
}

#[test]
fn the_container_of_the_cronjob() {
    let recipe = include_str!("../../../../docs/recipes/kubernetes-cronjob.md");
    let manifest = blocks(recipe, "yaml")[0];
    let list = manifest.split_once("command: [").and_then(|(_, rest)| rest.split_once(']')).expect("a command").0;
    let words: Vec<String> =
        list.split(',').map(|word| word.trim().trim_matches('"')).map(|word| format!("'{word}'")).collect();
    let place = Place::new("report", "echo $HAPAX_PERIOD >> ran");
    place.runs_once(&words.join(" "), &[("/app/report", "report"), ("/dev/termination-log", "result")]);
    let result = std::fs::read_to_string(place.cli.folder().join("result")).expect("written");
    let result: Value = serde_json::from_str(&result).expect("JSON");
    assert_eq!(result["outcome"], "skipped_done");
}

#[test]
fn one_deploy_at_a_time() {
    let recipe = include_str!("../../../../docs/recipes/deploy-hook.md");
    let line = blocks(recipe, "sh")[0];
    let script =
        "touch started; [ -e go ] || while [ ! -e go ]; do sleep 0.02; done; echo $HAPAX_FENCE >> ran; exit 75";
    let place = Place::new("deploy.sh", script);
    let first = place.shell(line, &[]).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut first = Running(first.expect("it starts"));
    wait_for("the first deploy begins", || place.cli.folder().join("started").exists());
    let outcome = |ran: &Ran| {
        let text = std::fs::read_to_string(place.cli.folder().join("deploy.json")).expect("written");
        let result: Value = serde_json::from_str(&text).expect("JSON");
        (ran.code, result["outcome"].as_str().expect("a word").to_owned())
    };
    let second = ran(place.shell(line, &[("--wait 10m", "--wait 50ms")]), "");
    assert_eq!(outcome(&second), (75, "skipped_busy".to_owned()));
    std::fs::write(place.cli.folder().join("go"), "").expect("written");
    assert_eq!(first.code(), Some(75));
    let third = ran(place.shell(line, &[]), "");
    assert_eq!(outcome(&third), (75, "ran".to_owned()), "the script's own 75 is told apart");
    let fences = std::fs::read_to_string(place.cli.folder().join("ran")).expect("it ran");
    let fences: Vec<u64> = fences.lines().map(|fence| fence.parse().expect("a number")).collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
}

#[test]
fn every_line_of_the_flock_table_runs() {
    let recipe = include_str!("../../../../docs/recipes/from-flock.md");
    let rows = recipe.lines().filter(|line| line.starts_with("| `flock"));
    let commands: Vec<String> = rows
        .filter_map(|row| row.split('`').find(|code| code.starts_with("hapax exec")))
        .map(|code| code.replace(r"\|", "|"))
        .collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    let place = Place::new("cmd", "echo cmd");
    for name in ["a", "b"] {
        std::fs::copy(place.cli.folder().join("cmd"), place.cli.folder().join(name)).expect("copied");
    }
    std::fs::write(place.cli.folder().join("b"), "#!/bin/sh\ncat\n").expect("written");
    for command in commands {
        let ran = ran(place.shell(&command, &[]), "");
        assert_eq!((ran.code, ran.out.as_str()), (0, "cmd\n"), "{command}: {ran:?}");
    }
}
