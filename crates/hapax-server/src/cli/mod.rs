//! WHAT CAN BE TYPED? One file for each noun or verb: its arguments with their help, and what it does with them.
//!
//! A verb asks the library, prints data through [`Output`](crate::output::Output) and gives an exit code or a
//! [`Failure`](crate::exit::Failure). It adds no rule of its own: what is allowed is said by the library's `model/`.
//!
//! This room does not know: SQL, how a store keeps anything, or how errors are drawn. `demo/` alone looks into a
//! store's file, because it judges it.

mod completions;
mod demo;
mod doctor;
mod exec;
mod job;
mod lock;
mod man;
mod migrate;
mod once;
mod queue;
mod version;
mod worker;

use clap::{ArgAction, Args, Parser, Subcommand};
use hapax::Hapax;

use crate::exit::{Answer, Failure};
use crate::output::{Errors, Format, Output, TimeStyle};
use crate::store::Place;

const AFTER: &str = "\
Exit codes:
    0  it worked
    1  the answer is no, or a part failed
    2  bad usage or bad input
    3  no such job
    4  refused: the job's state does not allow it, or the once key stands for
       other work
   69  the store cannot be reached or written, or has no room
   70  it may have happened: look before you repeat it
   78  the store is not usable, or too new
  125  a mistake of hapax itself

The store:
  --store URL, else HAPAX_STORE_URL, else an SQLite file in the state folder:
  $XDG_STATE_HOME/hapax/hapax.db, or ~/.local/state/hapax/hapax.db.
    sqlite:PATH                            protects one host
    postgres://USER:PASSWORD@HOST/DATABASE protects every host that reaches it;
                                           `hapax migrate` makes its tables;
                                           ?schema=NAME for another than hapax
  A password belongs into the variable: others can read a command line.

Examples:
  hapax demo
  hapax job push send-mail '{\"to\":7}' --once mail-7
  hapax queue list";

/// Background work that takes effect once.
///
/// Execution may repeat; the effect does not. Jobs have an identity that outlives every lock, each attempt has a fence
/// that only grows, and every write is conditional on it.
#[derive(Debug, Parser)]
#[command(name = "hapax", version, after_help = AFTER, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// What goes with every verb.
    #[command(flatten)]
    pub(crate) global: Global,
    /// The verb.
    #[command(subcommand)]
    verb: Verb,
}

/// Options of every verb.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// Where the jobs are kept: sqlite:PATH or postgres://USER@HOST/DATABASE [default: HAPAX_STORE_URL, else a file in
    /// the state folder]
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// Form of the answer on stdout: text or json
    #[arg(short, long, global = true, value_enum, value_name = "FORM", default_value_t, hide_possible_values = true)]
    output: Format,
    /// How points in time are shown in text: relative or iso
    #[arg(
        long = "time",
        global = true,
        value_enum,
        value_name = "STYLE",
        default_value_t,
        hide_possible_values = true
    )]
    times: TimeStyle,
    /// More of what the library does, on stderr; again for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Global {
    /// How errors are shown.
    pub(crate) fn errors(&self) -> Errors {
        Errors { format: self.output }
    }

    /// How answers are shown.
    pub(crate) fn output(&self) -> Output {
        Output::new(self.output, self.times)
    }

    /// Where the store is.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        Place::find(self.store.as_deref())
    }

    /// Opens the store.
    pub(crate) async fn open(&self) -> Result<(Hapax, Output), Failure> {
        Ok((self.place()?.open().await?, self.output()))
    }
}

/// Every verb.
#[derive(Debug, Subcommand)]
enum Verb {
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoInstance(demo::DemoInstance),
    Exec(Box<exec::Exec>),
    #[command(subcommand)]
    Lock(lock::Lock),
    #[command(subcommand)]
    Once(once::Once),
    #[command(subcommand)]
    Job(job::Job),
    #[command(subcommand)]
    Queue(queue::Queue),
    #[command(subcommand)]
    Worker(worker::Worker),
    Migrate(migrate::Migrate),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Man(man::Man),
    Version(version::Version),
}

impl Cli {
    /// What the verb runs on. A command under a lease starts at once and does one thing at a time.
    pub(crate) fn runtime(&self) -> std::io::Result<tokio::runtime::Runtime> {
        match self.verb {
            Verb::Exec(_) => tokio::runtime::Builder::new_current_thread().enable_all().build(),
            _ => tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        }
    }

    /// Does what was typed; the exit code may be that of a command.
    pub(crate) async fn run(self) -> Result<std::process::ExitCode, Failure> {
        let global = self.global;
        match self.verb {
            Verb::Exec(exec) => exec.run(&global).await,
            verb => verb.run(&global).await.map(Into::into),
        }
    }
}

impl Verb {
    async fn run(self, global: &Global) -> Answer {
        match self {
            Self::Exec(_) => unreachable!("its exit code is the command's"),
            Self::Lock(lock) => lock.run(global).await,
            Self::Once(once) => once.run(global).await,
            Self::Demo(demo) => demo.run(global).await,
            Self::DemoInstance(instance) => instance.run().await,
            Self::Job(job) => job.run(global).await,
            Self::Queue(queue) => queue.run(global).await,
            Self::Worker(worker) => worker.run(global).await,
            Self::Migrate(migrate) => migrate.run(global).await,
            Self::Doctor(doctor) => doctor.run(global).await,
            Self::Completions(completions) => completions.run(global),
            Self::Man(man) => man.run(),
            Self::Version(_) => version::Version::print(global),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Cli::command().debug_assert();
    }
}
