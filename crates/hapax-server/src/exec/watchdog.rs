//! The watchdog: a process of its own between hapax and the child, so that the child is stopped in time also when
//! hapax cannot do it.
//!
//! It leads a session, is the child's parent and the subreaper of what the child leaves behind. Its duties:
//!
//! 1. start the child in a group of its own, with the stdin that hapax was given;
//! 2. pass signals on;
//! 3. stop everything before the deadline, unless a later one arrives: that is how a hapax that hangs is noticed;
//! 4. stop everything when the socket closes: that is how a hapax that was killed is noticed;
//! 5. stop what the child leaves running;
//! 6. tell how it ended.
//!
//! It knows nothing of stores, locks or keys.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use hapax::clock::{Clock, Micros};
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, setsid, wait};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};

use super::alarm::Alarm;
use super::family::{Family, Reach};
use super::signals::Signals;
use super::wire::{News, Order, receive_file};

/// The hidden verb; not for people.
pub(crate) const VERB: &str = "exec-watchdog";

/// Between two looks at a child that is being stopped.
const LOOK_MS: u64 = 20;
/// How long to go on ending what does not end, such as a process that hangs in the kernel.
const PATIENCE_MS: u64 = 3_000;

/// How the child is to be stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    /// From TERM to KILL, when there is time.
    pub(super) grace_ms: u64,
    /// Length of the lease; zero without one.
    pub(super) ttl_ms: u64,
}

impl Manners {
    /// From TERM to KILL when the lease runs out.
    const fn short_grace_ms(self) -> u64 {
        let quarter = self.ttl_ms / 4;
        if self.ttl_ms > 0 && quarter < self.grace_ms { quarter } else { self.grace_ms }
    }

    /// From KILL to the deadline: the kernel needs a moment to take a process down.
    fn lead_ms(self) -> u64 {
        (self.ttl_ms / 20).clamp(10, 1_000)
    }
}

/// What the hidden verb is called with; made by hapax, never by a person.
#[derive(Debug)]
pub(super) struct Call {
    /// How to stop.
    pub(super) manners: Manners,
    /// The child's report, removed here when hapax cannot do it.
    pub(super) report: PathBuf,
    /// The child's command line.
    pub(super) command: Vec<OsString>,
}

impl Call {
    /// As arguments.
    pub(super) fn args(&self) -> Vec<OsString> {
        let numbers = [self.manners.grace_ms, self.manners.ttl_ms].map(|ms| ms.to_string().into());
        [VERB.into()]
            .into_iter()
            .chain(numbers)
            .chain([self.report.clone().into()])
            .chain(self.command.clone())
            .collect()
    }

    fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || args.next()?.to_str()?.parse().ok();
        let manners = Manners { grace_ms: number()?, ttl_ms: number()? };
        let report = args.next()?.into();
        let command: Vec<OsString> = args.collect();
        (!command.is_empty()).then_some(Self { manners, report, command })
    }
}

/// Runs the watchdog with the arguments behind [`VERB`]. Its exit code is looked at by nobody.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let call = Call::parse(args).ok_or(io::ErrorKind::InvalidInput)?;
    // It fails for the leader of a group, which is what somebody makes of us who calls the verb by hand.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    let socket = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdin = receive_file(&socket)?;
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(async {
            // Whoever signals a whole control group means the child; the watchdog has to see it end.
            let _caught = Signals::catch()?;
            let mut children = signal(SignalKind::child())?;
            socket.set_nonblocking(true)?;
            let (reader, writer) = UnixStream::from_std(socket)?.into_split();
            let mut orders = Orders { lines: BufReader::new(reader).lines(), open: true };
            let alarm = Alarm::new()?;
            let mut watch = Watch::start(&call, stdin, writer).await?;
            while !watch.is_over().await {
                if let Some(next) = watch.next_look() {
                    alarm.set(next)?;
                }
                tokio::select! {
                    order = orders.next(), if orders.open => watch.obey(order),
                    _ = children.recv() => {}
                    rung = alarm.ring() => rung?,
                }
                watch.look_at_the_clock().await;
            }
            Ok(())
        })
        .inspect_err(|_| drop(std::fs::remove_file(&call.report)))
}

/// What hapax says.
struct Orders {
    lines: Lines<BufReader<OwnedReadHalf>>,
    open: bool,
}

impl Orders {
    /// The next order; nothing once hapax is gone. May be dropped while it waits.
    async fn next(&mut self) -> Option<Order> {
        while let Ok(Some(line)) = self.lines.next_line().await {
            if let Some(order) = Order::parse(&line) {
                return Some(order);
            }
        }
        self.open = false;
        None
    }
}

/// The child under watch.
struct Watch {
    child: Pid,
    family: Family,
    manners: Manners,
    report: PathBuf,
    hapax: Option<OwnedWriteHalf>,
    deadline: Option<Micros>,
    stopping: Option<Stopping>,
    ended: bool,
}

#[derive(Clone, Copy)]
struct Stopping {
    kill_at: Micros,
    reach: Reach,
}

impl Watch {
    async fn start(call: &Call, stdin: OwnedFd, mut hapax: OwnedWriteHalf) -> io::Result<Self> {
        let mut command = Command::new(&call.command[0]);
        let started = command.args(&call.command[1..]).stdin(Stdio::from(stdin)).process_group(0).spawn();
        let child = match started {
            Ok(child) => child,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                hapax.write_all(News::Cannot(errno).line().as_bytes()).await?;
                return Err(error);
            }
        };
        let child = Pid::from_child(&child);
        let mut watch = Self {
            child,
            family: Family { session: getpid().as_raw_nonzero().get() },
            manners: call.manners,
            report: call.report.clone(),
            hapax: Some(hapax),
            deadline: None,
            stopping: None,
            ended: false,
        };
        watch.tell(News::Started(child.as_raw_nonzero().get())).await;
        Ok(watch)
    }

    /// Follows an order; nothing means that hapax is gone.
    fn obey(&mut self, order: Option<Order>) {
        match order {
            Some(Order::Deadline(at)) => self.deadline = Some(at),
            // Its number is the group's until the child has been waited for, and nobody else's.
            Some(Order::Signal(number)) if !self.ended => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    let _ = rustix::process::kill_process_group(self.child, signal);
                }
            }
            Some(Order::Signal(_)) => {}
            Some(Order::Stop) => self.stop(self.manners.grace_ms, Reach::Descendants),
            None => {
                self.hapax = None;
                let _ = std::fs::remove_file(&self.report);
                self.stop(self.manners.short_grace_ms(), Reach::Descendants);
            }
        }
    }

    /// Begins to stop, or stops harder.
    fn stop(&mut self, grace_ms: u64, reach: Reach) {
        let kill_at = now().plus_ms(grace_ms);
        let before = self.stopping.map(|stopping| (stopping.kill_at.min(kill_at), stopping.reach));
        let (kill_at, old_reach) = before.unwrap_or((kill_at, Reach::Session));
        let wider = reach == Reach::Descendants && old_reach == Reach::Session;
        if self.stopping.is_none() || wider {
            // A stopped process sees TERM only once it goes on.
            self.family.signal(reach, &[Signal::TERM, Signal::CONT]);
        }
        self.stopping = Some(Stopping { kill_at, reach: if wider { reach } else { old_reach } });
    }

    /// Does what is due by now.
    async fn look_at_the_clock(&mut self) {
        let now = now();
        if self.hard_kill_at().is_some_and(|at| now >= minus_ms(at, self.manners.short_grace_ms()))
            && self.stopping.is_none_or(|stopping| stopping.reach == Reach::Session)
        {
            if !self.ended {
                self.tell(News::Late).await;
            }
            self.stop(self.manners.short_grace_ms(), Reach::Descendants);
        }
        if let Some(stopping) = self.stopping
            && (now >= stopping.kill_at || self.hard_kill_at().is_some_and(|at| now >= at))
        {
            self.family.signal(stopping.reach, &[Signal::KILL]);
        }
    }

    /// Whether the child has ended and nothing is left of it that could be ended.
    async fn is_over(&mut self) -> bool {
        self.reap().await;
        if !self.ended {
            return false;
        }
        let reach = self.stopping.map_or(Reach::Session, |stopping| stopping.reach);
        // One that forks while the table is read may be overlooked, hardly twice.
        let left = (0..2).map(|_| self.family.count(reach)).max().unwrap_or(0);
        // Those that ended while they were counted would be left to an init that may not wait for them.
        self.reap().await;
        let Some(stopping) = self.stopping else {
            if left > 0 {
                self.stop(self.manners.grace_ms, Reach::Session);
                return false;
            }
            self.tell(News::Clear(0)).await;
            return true;
        };
        let over = left == 0 || now() >= stopping.kill_at.plus_ms(PATIENCE_MS);
        if over {
            self.tell(News::Clear(left)).await;
        }
        over
    }

    /// Waits for everything that has ended: what has no parent any more comes to us.
    async fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid != self.child {
                continue;
            }
            self.ended = true;
            let code = status.exit_status().map(News::Exited);
            let news = code.or(status.terminating_signal().map(News::Killed));
            self.tell(news.unwrap_or(News::Exited(0))).await;
        }
    }

    /// When to look at the clock again.
    fn next_look(&self) -> Option<Micros> {
        match self.stopping {
            Some(_) => Some(now().plus_ms(LOOK_MS)),
            None => self.hard_kill_at().map(|at| minus_ms(at, self.manners.short_grace_ms())),
        }
    }

    /// When KILL is due because of the lease, whatever else is going on.
    fn hard_kill_at(&self) -> Option<Micros> {
        self.deadline.map(|at| minus_ms(at, self.manners.lead_ms()))
    }

    /// Tells hapax, if it is still there to listen.
    async fn tell(&mut self, news: News) {
        if let Some(hapax) = &mut self.hapax
            && hapax.write_all(news.line().as_bytes()).await.is_err()
        {
            self.hapax = None;
        }
    }
}

/// The time on `CLOCK_BOOTTIME`, which goes on while the machine sleeps.
fn now() -> Micros {
    Clock::system().now().lease
}

fn minus_ms(at: Micros, ms: u64) -> Micros {
    Micros(at.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000)))
}
