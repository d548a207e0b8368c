//! A timer on `CLOCK_BOOTTIME`: it rings on time also when the machine has slept in between, which the runtime's own
//! timers do not know of.

use std::io;

use hapax::clock::Micros;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe;

/// The timer. To the runtime it is one more file that becomes readable.
#[derive(Debug)]
pub(super) struct Alarm(pipe::Receiver);

impl Alarm {
    /// A timer that is not set. Needs a runtime.
    pub(super) fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        pipe::Receiver::from_owned_fd_unchecked(timer).map(Self)
    }

    /// Rings at this instant, at once if it has passed, and at no other.
    pub(super) fn set(&self, at: Micros) -> io::Result<()> {
        // Zero would switch it off.
        let at = at.0.max(1);
        let value = Timespec { tv_sec: at / 1_000_000, tv_nsec: at % 1_000_000 * 1_000 };
        let never_again = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = Itimerspec { it_interval: never_again, it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &set)?;
        Ok(())
    }

    /// Waits for it. May be dropped.
    pub(super) async fn ring(&self) -> io::Result<()> {
        loop {
            self.0.readable().await?;
            match self.0.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                rung => return rung.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_rings_for_the_past_at_once_and_for_the_future_in_time() {
        let now = || hapax::clock::Clock::system().now().lease;
        let alarm = Alarm::new().expect("a timer");
        alarm.set(Micros(0)).expect("set");
        alarm.ring().await.expect("rung");
        let at = now().plus_ms(30);
        alarm.set(at).expect("set");
        alarm.ring().await.expect("rung");
        assert!(now() >= at);
    }
}
