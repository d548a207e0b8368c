//! Finding and ending every process that a child has brought into being, as far as `/proc` shows them.

use std::collections::BTreeMap;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// Who belongs to the child: those of the watchdog's session, and, when it matters, those that left it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// The watchdog, which leads the session.
    pub(super) session: i32,
}

/// How far to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those in the session, whatever their group: what a child leaves running in the background.
    Session,
    /// Also descendants that made a session of their own: a lease that is lost must not go on being used by them.
    Descendants,
}

/// A line of `/proc/PID/stat`, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    session: i32,
    dead: bool,
    /// Ticks since boot; with the id it tells a process from a later one of the same number.
    started: u64,
}

impl Family {
    /// Sends a signal to every living member, and says how many there are.
    ///
    /// Each is opened, looked at again and only then signalled: its number may belong to a stranger by now.
    pub(super) fn signal(self, reach: Reach, signals: &[Signal]) -> usize {
        let members = self.members(reach);
        for member in &members {
            member.signal(signals);
        }
        members.len()
    }

    /// How many members live.
    pub(super) fn count(self, reach: Reach) -> usize {
        self.members(reach).len()
    }

    fn members(self, reach: Reach) -> Vec<Process> {
        let all: BTreeMap<i32, Process> = Process::all().map(|process| (process.pid, process)).collect();
        let belongs = |process: &&Process| {
            !process.dead
                && process.pid != self.session
                && (process.session == self.session || reach == Reach::Descendants && self.descends(**process, &all))
        };
        all.values().filter(belongs).copied().collect()
    }

    /// Whether the watchdog is above a process. Orphans count: they come back to the watchdog, their subreaper.
    fn descends(self, process: Process, all: &BTreeMap<i32, Process>) -> bool {
        let parent = |child: &Process| all.get(&child.parent).copied();
        // The table is no snapshot: a chain that bites its tail must end as well.
        std::iter::successors(Some(process), parent).take(all.len()).any(|above| above.parent == self.session)
    }
}

impl Process {
    fn all() -> impl Iterator<Item = Self> {
        let folder = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        folder.filter_map(|entry| Self::read(entry.file_name().to_str()?.parse().ok()?))
    }

    fn signal(self, signals: &[Signal]) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let opened = pidfd_open(pid, PidfdFlags::empty());
        if opened.as_ref().is_err_and(|error| *error == Errno::SRCH)
            || Self::read(self.pid).is_none_or(|now| now.started != self.started)
        {
            return;
        }
        for signal in signals {
            // Gone in between, or not ours to signal (a set-uid program): the next look tells. Kernels before 5.3 have
            // no handle on a process, only its number.
            let _ = match &opened {
                Ok(opened) => pidfd_send_signal(opened, *signal),
                Err(_) => kill_process(pid, *signal),
            };
        }
    }

    fn read(pid: i32) -> Option<Self> {
        let bytes = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&bytes))
    }

    /// The name in brackets may hold anything, brackets and blanks too; what counts stands behind the last one.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            pid,
            dead: matches!(*fields.first()?, "Z" | "X" | "x"),
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_mislead() {
        let stat = "42 (a) Z 1 (x) S 7 42 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let expected = Process { pid: 42, parent: 7, session: 9, dead: false, started: 12_345 };
        assert_eq!(Process::parse(42, stat), Some(expected));
        assert_eq!(Process::parse(1, "1 (init"), None);
        assert!(Process::parse(1, "1 (x) Z 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5").is_some_and(|p| p.dead));
    }

    #[test]
    fn this_process_is_found_and_its_session_is_not_empty() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        let found = Process::read(own).expect("Linux shows us to ourselves");
        assert!(!found.dead && found.parent > 0);
        let family = Family { session: found.session };
        assert!(own == found.session || family.count(Reach::Session) > 0);
    }
}
