//! Signals that are passed on to the child. One that was ignored when hapax started stays ignored, for it and for the
//! child: `nohup hapax exec …` and background jobs of a shell rely on it.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// What a person, a terminal, cron or an init sends to a program.
const PASSED: [Signal; 7] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH];

/// Catches signals from now on.
#[derive(Debug)]
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Catches those that are not ignored. Needs a runtime.
    pub(super) fn catch() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = PASSED.into_iter().filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
        let caught = wanted.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)));
        Ok(Self(caught.collect::<io::Result<_>>()?))
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let came =
                self.0.iter_mut().find_map(|(signal, stream)| stream.poll_recv(cx).is_ready().then_some(*signal));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next signal that asks a program to end.
    pub(super) async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ends(signal) {
                return signal;
            }
        }
    }
}

/// Whether a signal asks for an end, so that nothing is tried again after it.
pub(super) fn ends(signal: Signal) -> bool {
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].contains(&signal)
}

/// The set of ignored signals, one bit each from signal 1; nothing where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
