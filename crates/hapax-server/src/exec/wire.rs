//! What hapax and its watchdog say to each other: lines of text over one pair of sockets.
//!
//! The socket is the watchdog's stdin, so nothing else inherits it, and the child's own stdin travels over it as the
//! first message. Deadlines are instants on `CLOCK_BOOTTIME`: they mean the same in both processes, and a message that
//! is late is still true.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use hapax::clock::Micros;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// From hapax to its watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing of the child may be alive at this instant, unless a later one comes first.
    Deadline(Micros),
    /// Pass this signal on to the child's group.
    Signal(i32),
    /// Stop the child now.
    Stop,
}

/// From the watchdog to hapax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The child runs under this process id, which is also its group.
    Started(i32),
    /// It did not start: the error number of the system.
    Cannot(i32),
    /// The deadline came: the child is being stopped.
    Late,
    /// The child ended by itself with this code.
    Exited(i32),
    /// The child was ended by this signal.
    Killed(i32),
    /// The child has ended and so many processes that it left behind could not be ended.
    Clear(usize),
}

impl Order {
    /// The line that says it.
    pub(super) fn line(self) -> String {
        match self {
            Self::Deadline(at) => format!("deadline {}\n", at.0),
            Self::Signal(number) => format!("signal {number}\n"),
            Self::Stop => "stop 0\n".to_owned(),
        }
    }

    /// What a line says; nothing if it is none of ours.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, number) = line.trim_end().split_once(' ')?;
        Some(match word {
            "deadline" => Self::Deadline(Micros(number.parse().ok()?)),
            "signal" => Self::Signal(number.parse().ok()?),
            "stop" => Self::Stop,
            _ => return None,
        })
    }
}

impl News {
    /// The line that says it.
    pub(super) fn line(self) -> String {
        match self {
            Self::Started(pid) => format!("started {pid}\n"),
            Self::Cannot(errno) => format!("cannot {errno}\n"),
            Self::Late => "late 0\n".to_owned(),
            Self::Exited(code) => format!("exited {code}\n"),
            Self::Killed(signal) => format!("killed {signal}\n"),
            Self::Clear(left) => format!("clear {left}\n"),
        }
    }

    /// What a line says; nothing if it is none of ours.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, number) = line.trim_end().split_once(' ')?;
        let small = || number.parse::<i32>().ok();
        Some(match word {
            "started" => Self::Started(small()?),
            "cannot" => Self::Cannot(small()?),
            "late" => Self::Late,
            "exited" => Self::Exited(small()?),
            "killed" => Self::Killed(small()?),
            "clear" => Self::Clear(number.parse().ok()?),
            _ => return None,
        })
    }
}

/// Sends an open file, with one byte to carry it.
pub(super) fn send_file(socket: &UnixStream, file: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for one file"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(b"f")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The file that was sent first; an error when the other side has gone away.
pub(super) fn receive_file(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.last().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_reads_as_what_it_said() {
        for order in [Order::Deadline(Micros(i64::MAX)), Order::Signal(15), Order::Stop] {
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
        let news = [News::Started(7), News::Cannot(2), News::Late, News::Exited(41), News::Killed(9), News::Clear(0)];
        for news in news {
            assert_eq!(News::parse(&news.line()), Some(news));
        }
        assert_eq!((Order::parse("deadline x"), News::parse("")), (None, None));
    }

    #[test]
    fn a_file_arrives_as_another_handle_on_the_same_file() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        send_file(&here, &reader).expect("sent");
        drop(reader);
        let mut file = std::fs::File::from(receive_file(&there).expect("received"));
        drop(writer);
        assert_eq!(io::Read::read(&mut file, &mut [0; 8]).expect("the end"), 0);
        drop(here);
        assert!(receive_file(&there).is_err(), "nobody is there");
    }
}
