//! The processes on the stage: started, killed, frozen, woken, and ended with their parent, each by its own id.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hapax::{Fence, JobId};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::{Deserialize, Serialize};

use super::broken;
use super::judge::Ground;
use super::plan::INSTANCES;
use crate::exit::{Exit, Failure};
use crate::store::URL_VARIABLE;

/// Lease of every instance: short, so that nobody waits for a takeover.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// How much of a dead instance's log is shown.
const LOG_LINES: usize = 12;

/// What an instance was about to write when it froze; it wrote this down before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Frozen {
    /// Which instance it is.
    pub(super) index: usize,
    /// The job that it had claimed.
    pub(super) job: JobId,
    /// Under this fence.
    pub(super) fence: Fence,
    /// The key of the errand.
    pub(super) key: String,
}

/// Where the instances and their parent leave notes for each other.
#[derive(Clone, Debug)]
pub(super) struct Notes(PathBuf);

impl Notes {
    /// Notes in this folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The wish that an instance freezes; the one that takes the file away does it.
    pub(super) fn wish(&self) -> PathBuf {
        self.0.join("freeze")
    }

    /// What an instance was about to write when it froze.
    pub(super) fn frozen(&self) -> PathBuf {
        self.0.join("frozen.json")
    }

    fn log(&self, index: usize) -> PathBuf {
        self.0.join(format!("instance-{}.log", index + 1))
    }
}

/// One process.
#[derive(Debug)]
struct Process {
    child: Child,
    name: String,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Fleet {
    ground: Ground,
    notes: Notes,
    careless: bool,
    processes: Vec<Option<Process>>,
}

impl Fleet {
    /// A fleet on this ground, with nobody in it yet. `careless` instances commit their effects by themselves.
    pub(super) fn new(ground: Ground, folder: &Path, careless: bool) -> Self {
        let processes = (0..INSTANCES).map(|_| None).collect();
        Self { ground, notes: Notes::new(folder), careless, processes }
    }

    /// Starts an instance as a process of its own, in a process group of its own: a Ctrl-C is for the parent, which
    /// then ends each of them.
    pub(super) fn start(&mut self, index: usize) -> Result<(), Failure> {
        let failed = |error: std::io::Error| broken("an instance could not be started", &error);
        let program = std::env::current_exe().map_err(failed)?;
        let log = OpenOptions::new().create(true).append(true).open(self.notes.log(index)).map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("demo-instance");
        match &self.ground {
            Ground::File(file) => command.arg("--file").arg(file),
            // It may hold a password, and arguments are for everybody to read.
            Ground::Schema { url, name } => command.env(URL_VARIABLE, url).arg("--schema").arg(name),
        };
        let child = command
            .arg("--notes")
            .arg(&self.notes.0)
            .arg("--index")
            .arg(index.to_string())
            .arg("--parent")
            .arg(std::process::id().to_string())
            .args(self.careless.then_some("--careless"))
            // Its end tells the child that it shall drain, or that nobody is there any more.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let name = name_of(index, child.id());
        self.processes[index] = Some(Process { child, name });
        Ok(())
    }

    /// The notes that are left for each other.
    pub(super) const fn notes(&self) -> &Notes {
        &self.notes
    }

    /// The name under which an instance is registered.
    pub(super) fn name(&self, index: usize) -> &str {
        self.processes[index].as_ref().map_or("", |process| &process.name)
    }

    /// Kills an instance without any chance to tidy up, and waits until it is gone.
    pub(super) fn kill(&mut self, index: usize) -> Result<(), Failure> {
        let Some(mut process) = self.processes[index].take() else { return Ok(()) };
        let killed = process.child.kill().and_then(|()| process.child.wait());
        killed.map(drop).map_err(|error| broken("an instance could not be killed", &error))
    }

    /// Whether an instance stands still after SIGSTOP.
    pub(super) fn is_stopped(&self, index: usize) -> Result<bool, Failure> {
        let Some(pid) = self.pid(index) else { return Ok(false) };
        // NOWAIT leaves the report there, so that asking changes nothing.
        let asked = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT);
        let status = asked.map_err(|error| broken("an instance's state", &error))?;
        Ok(status.is_some_and(|status| status.stopped()))
    }

    /// Lets a stopped instance go on.
    pub(super) fn wake(&self, index: usize) -> Result<(), Failure> {
        let Some(pid) = self.pid(index) else { return Ok(()) };
        kill_process(pid, Signal::CONT).map_err(|error| broken("an instance could not be woken", &error))
    }

    /// That everybody who was started and not killed is still there.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        for index in 0..self.processes.len() {
            let log = self.notes.log(index);
            let Some(process) = &mut self.processes[index] else { continue };
            if let Ok(Some(status)) = process.child.try_wait() {
                let (number, words) = (index + 1, tail(&log));
                let what = format!("instance {number} ended by itself ({status}); its last words:\n{words}");
                return Err(Failure::new(Exit::Internal, what));
            }
        }
        Ok(())
    }

    /// Asks everybody to drain, and waits for at most `patience`; who has not ended then is killed.
    pub(super) async fn drain(&mut self, patience: Duration) -> Result<(), Failure> {
        for process in self.processes.iter_mut().flatten() {
            drop(process.child.stdin.take());
        }
        let begun = Instant::now();
        while begun.elapsed() < patience && self.processes.iter_mut().flatten().any(is_there) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (0..self.processes.len()).try_for_each(|index| self.kill(index))
    }

    /// Kills everybody who is there.
    pub(super) fn end_at_once(&mut self) {
        for index in 0..self.processes.len() {
            // Nobody is left who could be told.
            let _ = self.kill(index);
        }
    }

    fn pid(&self, index: usize) -> Option<Pid> {
        let id = self.processes[index].as_ref()?.child.id();
        i32::try_from(id).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end_at_once();
    }
}

/// The name of an instance: for people, and for its parent to know it by.
pub(super) fn name_of(index: usize, process: u32) -> String {
    format!("demo-{}-{process}", index + 1)
}

fn is_there(process: &mut Process) -> bool {
    matches!(process.child.try_wait(), Ok(None))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
