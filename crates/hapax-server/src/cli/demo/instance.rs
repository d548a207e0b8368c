//! What runs inside each process of the demo: a host with one task, as any program would write it.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hapax::host::{Finished, State};
use hapax::{Host, JobError, Run};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use tokio::sync::{RwLock, oneshot};

use super::errand::{Errand, QUEUE};
use super::fleet::{Frozen, LEASE, Notes, name_of};
use super::judge::{Effect, Effects, Ground};
use crate::exit::{Answer, Exit, Failure};
use crate::store::Place;

/// Tasks at work at once in one process.
const WORKERS: u32 = 8;
/// How long the claims of this process take to cease once nobody finishes any more: they are transactions as well.
const CLAIMS_CEASE: Duration = Duration::from_millis(200);
/// SIGSTOP is carried out by whichever thread gets it; this one waits until it has been.
const STOP_TAKES: Duration = Duration::from_millis(300);

/// One instance of the demo; started by `hapax demo` alone.
#[derive(Args, Debug)]
pub(crate) struct DemoInstance {
    /// The store's file; without it the store's URL is in the environment.
    #[arg(long, required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// The schema that the URL names.
    #[arg(long)]
    schema: Option<String>,
    /// Where notes are left.
    #[arg(long)]
    notes: PathBuf,
    /// Which instance this is.
    #[arg(long)]
    index: usize,
    /// The process that started it.
    #[arg(long)]
    parent: i32,
    /// Commits effects by themselves.
    #[arg(long)]
    careless: bool,
}

/// What the task gets from its host.
#[derive(Clone, Debug)]
struct Stagehand {
    index: usize,
    name: Arc<str>,
    notes: Arc<Notes>,
    effects: Arc<dyn Effects>,
    /// Effects are to be committed by themselves.
    careless: bool,
    /// Held shared while an effect is being committed; the one who freezes the process holds it alone, so that nobody
    /// is frozen inside a transaction. A process that is would stop every writer of a file, which shows nothing.
    quiet: Arc<RwLock<()>>,
}

impl DemoInstance {
    /// Runs the errands until the parent closes its end of stdin.
    pub(crate) async fn run(self) -> Answer {
        self.end_with_parent()?;
        let process = std::process::id();
        let name = name_of(self.index, process);
        let (hapax, effects) = self.ground()?.join().await?;
        let stagehand = Stagehand {
            index: self.index,
            name: name.as_str().into(),
            notes: Arc::new(Notes::new(&self.notes)),
            effects,
            careless: self.careless,
            quiet: Arc::default(),
        };
        let host = Host::builder(hapax, stagehand)
            .name(&name)
            .lease(LEASE)
            .poll(Duration::from_millis(50))
            .queue(QUEUE, |queue| queue.workers(WORKERS))
            .task(run_errand)
            .start()
            .await?;
        parent_closes_stdin().await;
        host.drain().await;
        Ok(Exit::Ok)
    }

    fn ground(&self) -> Result<Ground, Failure> {
        match (&self.file, &self.schema) {
            (None, Some(name)) => Ok(Ground::Schema { url: Place::find(None)?.url().to_owned(), name: name.clone() }),
            (file, _) => Ok(Ground::File(file.clone().unwrap_or_default())),
        }
    }

    /// However the parent ends, this process does not outlive it; not even while it is frozen.
    fn end_with_parent(&self) -> Result<(), Failure> {
        let failed = |error| Failure::new(Exit::Internal, format!("cannot watch the parent: {error}"));
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
        // It may have ended before it was watched.
        if getppid().map(Pid::as_raw_pid) == Some(self.parent) {
            return Ok(());
        }
        Err(Failure::new(Exit::Internal, "the parent is gone; `hapax demo` starts this process, nobody else"))
    }
}

/// The task: some work, then the effect and the finish of the run in one transaction.
async fn run_errand(errand: Errand, State(stage): State<Stagehand>, run: Run) -> Result<Finished, JobError> {
    tokio::time::sleep(Duration::from_millis(errand.work_ms)).await;
    // Whoever takes the wish away is the one who fulfils it.
    let turn = if std::fs::remove_file(stage.notes.wish()).is_ok() {
        let alone = stage.quiet.clone().write_owned().await;
        tokio::time::sleep(CLAIMS_CEASE).await;
        freeze(&stage, &errand, &run)?;
        drop(alone);
        stage.quiet.clone().read_owned().await
    } else {
        stage.quiet.clone().read_owned().await
    };
    let effect = Effect {
        key: errand.key,
        job: run.job_id().to_string(),
        fence: run.fence().as_i64(),
        instance: stage.name.to_string(),
        process: std::process::id(),
    };
    if stage.careless {
        return stage.effects.careless(run, effect).await;
    }
    let ended = stage.effects.with_finish(run, effect).await;
    drop(turn);
    ended
}

/// Stops this whole process, between the claim of the job and its effect, until somebody wakes it.
fn freeze(stage: &Stagehand, errand: &Errand, run: &Run) -> Result<(), JobError> {
    let note = Frozen { index: stage.index, job: run.job_id(), fence: run.fence(), key: errand.key.clone() };
    let (path, half) = (stage.notes.frozen(), stage.notes.frozen().with_extension("half"));
    std::fs::write(&half, serde_json::to_string(&note)?)?;
    std::fs::rename(half, path)?;
    kill_process(getpid(), Signal::STOP)?;
    std::thread::sleep(STOP_TAKES);
    Ok(())
}

/// Waits for the end of stdin, which the parent holds open: closed when it wants no more, or is gone.
async fn parent_closes_stdin() {
    let (closed, told) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut nothing = [0_u8; 64];
        while matches!(std::io::stdin().lock().read(&mut nothing), Ok(1..)) {}
        drop(closed);
    });
    // It fails when the thread has ended, and that is the message.
    let _ = told.await;
}
