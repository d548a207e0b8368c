//! PgBouncer in transaction mode, always a private one: no connection of a client is a session of the server there,
//! which is what many a production looks like and what a store must bear.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::Failure;

use super::Site;
use super::knock::{Door, knock};
use super::machine::{self, Runner, failed};
use super::url::Target;

/// The variable that names a PgBouncer of the caller's, and that tells the tests.
pub(super) const VARIABLE: &str = "HAPAX_TEST_PGBOUNCER_URL";

/// How long it may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The URL of a PgBouncer before the server at `url`.
pub(super) fn up(site: &Site, url: &str) -> Result<String, Failure> {
    if let Some(pooled) = site.given(VARIABLE) {
        let door = knock(&Target::parse(pooled)?);
        return match door {
            Door::Open { .. } | Door::Asks => Ok(pooled.to_string()),
            Door::Refuses(why) | Door::Shut(why) => {
                Err(failed(format!("{VARIABLE} is set, but it cannot be reached there ({why}); unset it or start it")))
            }
        };
    }
    let server = Target::parse(url)?;
    if find().is_none() {
        machine::install(&["pgbouncer"])?;
    }
    let program = find().ok_or_else(|| failed("PgBouncer is installed, but `pgbouncer` is not where we look"))?;
    let runner = Runner::find()?;
    let folder = runner.folder(&site.home, "pgbouncer")?;
    let file = file(&folder);
    let kept = fs::read_to_string(&file).unwrap_or_default();
    if let Some(pid) = machine::process(&pid_file(&folder), &file) {
        let pooled = port(&kept).map(|port| pooled(port, &server));
        if port(&kept).is_some_and(|port| kept == settings(&folder, port, &server))
            && let Some(pooled) = pooled.filter(|pooled| opens(pooled))
        {
            return Ok(pooled);
        }
        // It stands before another server, or it does not answer.
        end(&folder, pid)?;
    }
    let port = machine::free_port()?;
    machine::write(&file, &settings(&folder, port, &server))?;
    machine::run(runner.command(&program).arg("-d").arg(&file))?;
    let pooled = pooled(port, &server);
    until(|| opens(&pooled)).then_some(pooled).ok_or_else(|| {
        failed(format!("PgBouncer does not let us through to the server; its log is {}", folder.join("log").display()))
    })
}

/// The URL through PgBouncer. It knows the password of the server; itself it asks for none.
fn pooled(port: u16, server: &Target) -> String {
    Target::open(port, &server.user)
}

fn opens(url: &str) -> bool {
    Target::parse(url).is_ok_and(|target| matches!(knock(&target), Door::Open { .. }))
}

/// Asks again and again, up to the end of our patience.
fn until(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    false
}

fn find() -> Option<PathBuf> {
    // Debian puts it where only root's `PATH` leads.
    machine::program("pgbouncer", &["/usr/sbin".into(), "/usr/local/sbin".into()])
}

fn file(folder: &Path) -> PathBuf {
    folder.join("pgbouncer.ini")
}

fn pid_file(folder: &Path) -> PathBuf {
    folder.join("pid")
}

/// Its whole configuration. Few connections, so that clients share them from the first moment on.
fn settings(folder: &Path, port: u16, server: &Target) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let password = server.password.as_deref().map(|word| format!(" password={}", quoted(word))).unwrap_or_default();
    let Target { host, port: behind, user, .. } = server;
    let folder = folder.display();
    format!(
        "[databases]\n\
         * = host={host} port={behind} user={}{password}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = 5\n\
         max_client_conn = 500\n\
         server_login_retry = 1\n\
         ignore_startup_parameters = extra_float_digits\n\
         logfile = {folder}/log\n\
         pidfile = {folder}/pid\n",
        quoted(user),
    )
}

/// The port in a configuration.
fn port(settings: &str) -> Option<u16> {
    settings.lines().find_map(|line| line.strip_prefix("listen_port = "))?.trim().parse().ok()
}

/// Ends the process and waits until it is gone.
fn end(folder: &Path, pid: u32) -> Result<(), Failure> {
    machine::terminate(pid)?;
    let gone = until(|| machine::process(&pid_file(folder), &file(folder)).is_none());
    gone.then_some(()).ok_or_else(|| failed(format!("PgBouncer, process {pid}, does not end; end it yourself")))
}

/// Stops ours, if it runs.
pub(super) fn down(site: &Site) -> Result<Vec<String>, Failure> {
    let folder = Runner::find()?.folder(&site.home, "pgbouncer")?;
    let Some(pid) = machine::process(&pid_file(&folder), &file(&folder)) else { return Ok(Vec::new()) };
    end(&folder, pid)?;
    Ok(vec!["stopped PgBouncer".into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_lead_to_the_server() {
        let server = Target::parse("postgres://me:it%27s@db.example:6000/postgres").expect("legal");
        let text = settings(Path::new("/x"), 6500, &server);
        assert!(text.contains("* = host=db.example port=6000 user='me' password='it''s'\n"), "{text}");
        assert!(text.contains("pool_mode = transaction\n") && text.contains("pidfile = /x/pid\n"), "{text}");
        assert_eq!(port(&text), Some(6500));
        assert_eq!(pooled(6500, &server), "postgres://me@127.0.0.1:6500/postgres");
    }
}
