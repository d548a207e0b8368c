//! Running the child under its watchdog, and hearing how it ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use hapax::clock::Deadline;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::claim::Leases;
use super::family::{Family, Reach};
use super::signals::{Signals, ends};
use super::watchdog::Call;
use super::wire::{News, Order, send_file};

/// How long to go on ending the processes of a child whose watchdog is gone.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a child may find in its environment; what an outer `hapax exec` set there is none of its business.
const ENVIRONMENT: [&str; 8] = [
    "HAPAX_FENCE",
    "HAPAX_RUN_ID",
    "HAPAX_KEY",
    "HAPAX_PERIOD",
    "HAPAX_ATTEMPT",
    "HAPAX_DEADLINE",
    "HAPAX_LOCK",
    "HAPAX_REPORT",
];

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal, which was not ours.
    Killed(i32),
    /// It never began: the error number of the system.
    Cannot(i32),
    /// Its lease was lost, and it was stopped.
    Lost,
    /// Its time was up, and it was stopped.
    TimedOut,
    /// Its watchdog ended before it, and it was stopped.
    Unwatched,
}

/// What became of a child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// How it ended.
    pub(super) end: End,
    /// How many processes of it could not be ended.
    pub(super) left: usize,
    /// The last signal that was passed on to it and asks a program to end.
    pub(super) asked_to_end: Option<Signal>,
}

/// A child and its watchdog.
pub(super) struct Child {
    lines: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    watchdog: std::process::Child,
}

impl Child {
    /// Starts the watchdog, which starts the child.
    pub(super) fn start(call: &Call, environment: &[(&str, OsString)]) -> io::Result<Self> {
        let (here, there) = std::os::unix::net::UnixStream::pair()?;
        send_file(&here, io::stdin())?;
        here.set_nonblocking(true)?;
        let mut command = Command::new(own_program());
        for name in ENVIRONMENT {
            command.env_remove(name);
        }
        let watchdog = command
            .arg0("hapax")
            .args(call.args())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(there)))
            .spawn()?;
        let (reader, orders) = UnixStream::from_std(here)?.into_split();
        Ok(Self { lines: BufReader::new(reader).lines(), orders, watchdog })
    }

    /// Stays with the child to its end: tells the watchdog each new deadline, passes signals on, and stops the child
    /// when its lease is lost or its time is up.
    pub(super) async fn supervise(
        mut self,
        leases: &Leases,
        signals: &mut Signals,
        timeout: Option<Duration>,
    ) -> Ended {
        let mut watched = Watched { end: None, stopped: None, asked_to_end: None };
        let mut deadline = leases.deadline();
        if let Some(deadline) = deadline {
            self.order(Order::Deadline(deadline.boottime())).await;
        }
        let time_up = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(time_up);
        loop {
            let running = watched.end.is_none() && watched.stopped.is_none();
            tokio::select! {
                biased;
                read = self.lines.next_line() => {
                    let Ok(Some(line)) = read else { return self.unwatched(watched).await };
                    match News::parse(&line) {
                        Some(News::Clear(left)) => return self.clear(&watched, left),
                        Some(News::Cannot(errno)) => return self.clear(&watched.ended(End::Cannot(errno)), 0),
                        news => watched.hear(news),
                    }
                }
                signal = signals.next() => {
                    watched.asked_to_end = ends(signal).then_some(signal).or(watched.asked_to_end);
                    self.order(Order::Signal(signal.as_raw())).await;
                }
                next = leases.renewed(deadline) => {
                    deadline = Some(next);
                    self.order(Order::Deadline(next.boottime())).await;
                }
                () = leases.lost(), if running => {
                    watched.stopped = Some(End::Lost);
                    self.order(Order::Stop).await;
                }
                () = &mut time_up, if running => {
                    watched.stopped = Some(End::TimedOut);
                    self.order(Order::Stop).await;
                }
                () = passed(deadline) => {
                    // The watchdog should have done it long ago: it hangs.
                    watched.stopped = watched.stopped.or(watched.end.is_none().then_some(End::Lost));
                    let _ = self.watchdog.kill();
                    deadline = None;
                }
            }
        }
    }

    async fn order(&mut self, order: Order) {
        // A watchdog that is gone is noticed by its silence.
        let _ = self.orders.write_all(order.line().as_bytes()).await;
    }

    fn clear(mut self, watched: &Watched, left: usize) -> Ended {
        // It has said its last word.
        let _ = self.watchdog.wait();
        let end = watched.stopped.or(watched.end).unwrap_or(End::Unwatched);
        Ended { end, left, asked_to_end: watched.asked_to_end }
    }

    /// The watchdog is gone, and nobody but us can stop what it watched.
    async fn unwatched(self, watched: Watched) -> Ended {
        let family = Family { session: i32::try_from(self.watchdog.id()).unwrap_or(i32::MAX) };
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        let left = loop {
            let left = family.signal(Reach::Session, &[Signal::KILL]);
            if left == 0 || patience.is_elapsed() {
                break left;
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
                () = &mut patience => {}
            }
        };
        self.clear(&watched, left)
    }
}

/// What is known of a child so far.
struct Watched {
    end: Option<End>,
    /// Why it was stopped.
    stopped: Option<End>,
    asked_to_end: Option<Signal>,
}

impl Watched {
    const fn ended(self, end: End) -> Self {
        Self { end: Some(end), ..self }
    }

    fn hear(&mut self, news: Option<News>) {
        match news {
            Some(News::Exited(code)) => self.end = Some(End::Exited(code)),
            Some(News::Killed(signal)) => self.end = Some(End::Killed(signal)),
            Some(News::Late) => self.stopped = self.stopped.or(Some(End::Lost)),
            _ => {}
        }
    }
}

/// Ends when a deadline has passed; never without one.
async fn passed(deadline: Option<Deadline>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    while !deadline.passed() {
        // A machine that slept may find that more time is gone than it slept for.
        tokio::time::sleep(deadline.left().min(Duration::from_secs(1))).await;
    }
}

/// This very program, also when its file was replaced by a newer one.
fn own_program() -> PathBuf {
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into())
}
