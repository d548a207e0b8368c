//! PostgreSQL: the server that we are told about, else one that runs here and lets us in, else one of our own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::Failure;

use super::Site;
use super::knock::{Door, knock};
use super::machine::{self, Runner, failed};
use super::url::Target;

/// The variable that says which server to use, and that tells the tests.
pub(super) const VARIABLE: &str = "HAPAX_TEST_POSTGRES_URL";

/// Set to `1`, it leaves servers that run here alone and starts one of our own.
const PRIVATE: &str = "HAPAX_SERVICES_PRIVATE";

/// What differs from the defaults. It keeps syncing to disk: a test that kills the server wants its commits back.
const SETTINGS: &str = "\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 300\n";

/// How often a private server is started anew when somebody else was faster on its port.
const TRIES: u32 = 3;

/// The URL of a server that lets the tests in.
pub(super) fn up(site: &Site) -> Result<String, Failure> {
    if let Some(url) = site.given(VARIABLE) {
        return told(url);
    }
    // A server of our own that runs already is what the tests had before.
    if let Some(url) = running(site)? {
        return Ok(url);
    }
    if site.given(PRIVATE) != Some("1")
        && let Some(url) = found()
    {
        return Ok(url);
    }
    private(site)
}

/// The server that the variable names: it answers, or we fail. One that wants the password which is in the URL is fine;
/// whether it is the right one, the tests will say.
fn told(url: &str) -> Result<String, Failure> {
    let trouble = |what: &str| {
        failed(format!("{VARIABLE} is set, but {what}; start that server, or unset the variable and one is looked for"))
    };
    let target = match Target::parse(url) {
        Ok(target) => target,
        Err(Failure::Failed(why) | Failure::Usage(why)) => return Err(trouble(&why)),
    };
    let place = format!("{}:{}", target.host, target.port);
    match knock(&target) {
        Door::Open { may_create: true } => Ok(url.to_string()),
        Door::Asks if target.password.is_some() => Ok(url.to_string()),
        Door::Open { may_create: false } => {
            let Target { user, database, .. } = &target;
            Err(trouble(&format!("`{user}` may not make databases there and schemas in `{database}`, as the tests do")))
        }
        Door::Asks => Err(trouble(&format!("the server on {place} wants a password and the URL has none"))),
        Door::Refuses(why) => Err(trouble(&format!("the server on {place} says: {why}"))),
        Door::Shut(why) => Err(trouble(&format!("nobody answers on {place} ({why})"))),
    }
}

/// A server in the usual place that lets us in without a question. Only by TCP: the proxy with which the tests break
/// connections, and PgBouncer, stand between us and it.
fn found() -> Option<String> {
    let me = ["USER", "LOGNAME"].iter().find_map(|name| env::var(name).ok());
    let users = ["postgres".to_string()].into_iter().chain(me);
    let urls = users.map(|user| Target::open(5432, &user));
    urls.into_iter().find(|url| opens(url))
}

/// Whether a URL of ours leads to where the tests can work.
fn opens(url: &str) -> bool {
    Target::parse(url).is_ok_and(|target| knock(&target) == Door::Open { may_create: true })
}

/// The folder with the private server's files, if there is one.
fn data(site: &Site) -> Result<PathBuf, Failure> {
    Ok(Runner::find()?.folder(&site.home, "postgres")?.join("data"))
}

/// The URL of the private server, if it runs.
fn running(site: &Site) -> Result<Option<String>, Failure> {
    let data = data(site)?;
    let pid_file = data.join("postmaster.pid");
    if machine::process(&pid_file, &data).is_none() {
        return Ok(None);
    }
    let text = fs::read_to_string(&pid_file).unwrap_or_default();
    Ok(port(&text).map(|port| Target::open(port, "postgres")).filter(|url| opens(url)))
}

/// The port in a `postmaster.pid`, which is its fourth line.
fn port(pid_file: &str) -> Option<u16> {
    pid_file.lines().nth(3)?.trim().parse().ok()
}

/// Starts a server of our own.
fn private(site: &Site) -> Result<String, Failure> {
    if programs().is_none() {
        machine::install(&["postgresql"])?;
    }
    let programs = programs().ok_or_else(|| failed("PostgreSQL is installed, but without `initdb` where we look"))?;
    // Only now: the package makes the user that it runs as.
    let runner = Runner::find()?;
    let data = data(site)?;
    if !data.join("PG_VERSION").exists() {
        let mut make = runner.command(&programs.join("initdb"));
        let options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        machine::run(make.args(options).arg("--pgdata").arg(&data))?;
        let file = data.join("postgresql.conf");
        let whole = fs::read_to_string(&file).unwrap_or_default() + SETTINGS;
        machine::write(&file, &whole)?;
    }
    let mut last = failed("it was not tried");
    for _ in 0..TRIES {
        let port = machine::free_port()?;
        match machine::run(&mut start(runner, &programs, &data, port)) {
            Ok(_) => return Ok(Target::open(port, "postgres")),
            Err(failure) => last = failure,
        }
    }
    let (Failure::Failed(why) | Failure::Usage(why)) = last;
    Err(failed(format!("a private PostgreSQL does not start ({why}); its log is {}", log(&data).display())))
}

fn log(data: &Path) -> PathBuf {
    data.with_file_name("log")
}

/// Starts the server in the background and waits until it takes connections.
fn start(runner: Runner, programs: &Path, data: &Path, port: u16) -> Command {
    let mut start = runner.command(&programs.join("pg_ctl"));
    start.arg("start").arg("--wait").arg("--pgdata").arg(data).arg("--log").arg(log(data));
    start.arg("--options").arg(format!("-c port={port}"));
    start
}

/// The folder with `initdb` and `pg_ctl`. Debian keeps one for each version, outside the `PATH`: the newest is taken.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort_by_key(|folder| std::cmp::Reverse(version(folder)));
    let initdb = machine::program("initdb", &versions)?;
    let folder = initdb.parent()?;
    folder.join("pg_ctl").is_file().then(|| folder.to_path_buf())
}

/// The version in `/usr/lib/postgresql/15/bin`.
fn version(folder: &Path) -> u32 {
    let name = folder.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.and_then(|name| name.parse().ok()).unwrap_or_default()
}

/// Stops the private server, if it runs.
pub(super) fn down(site: &Site) -> Result<Vec<String>, Failure> {
    let data = data(site)?;
    if machine::process(&data.join("postmaster.pid"), &data).is_none() {
        return Ok(Vec::new());
    }
    let programs = programs().ok_or_else(|| failed("PostgreSQL runs, but its `pg_ctl` is gone"))?;
    let mut stop = Runner::find()?.command(&programs.join("pg_ctl"));
    // Tests that were broken off may have left connections.
    machine::run(stop.arg("stop").arg("--wait").args(["--mode", "fast"]).arg("--pgdata").arg(&data))?;
    Ok(vec!["stopped the private PostgreSQL".into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_the_fourth_line() {
        assert_eq!(port("4711\n/data\n1700000000\n5599\n\n127.0.0.1\n"), Some(5599));
        assert_eq!(port("4711\n/data\n"), None);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version(Path::new("/usr/lib/postgresql/15/bin")) > version(Path::new("/usr/lib/postgresql/9/bin")));
        assert_eq!(version(Path::new("/usr/lib/postgresql/9.6/bin")), 0);
    }

    #[test]
    fn a_server_that_we_are_told_about_and_that_is_not_there_fails() {
        let port = machine::free_port().expect("a port");
        let Err(Failure::Failed(why)) = told(&Target::open(port, "me")) else { panic!("it must fail") };
        assert!(why.contains(VARIABLE) && why.contains("nobody answers on 127.0.0.1"), "{why}");
        let Err(Failure::Failed(why)) = told("localhost") else { panic!("it must fail") };
        assert!(why.contains("does not begin with `postgres://`"), "{why}");
    }
}
