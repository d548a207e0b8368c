//! Just enough of PostgreSQL's protocol, version 3, to see a commit go up and its answer come down.
//!
//! A message is a letter, a length of four bytes that counts itself, and a body; the client's first has no letter. Each
//! query and each Sync of a client is answered by one ReadyForQuery, by which answers are told apart.

use std::collections::{HashSet, VecDeque};

use super::faults::Fate;
use super::{Cut, Onward, Protocol};

/// Of a longer message so much is looked at, and the rest passed on as it comes: it is data, and no commit.
const LONG: usize = 1024 * 1024;

/// How long the client's first message is at least: its length and a version.
const OPENING: usize = 8;

/// In the place of a version: a wish for TLS, a wish for GSSAPI, and the wish to cancel a query.
const WANTS_TLS: u32 = 80_877_103;
const WANTS_GSS: u32 = 80_877_104;
const CANCELS: u32 = 80_877_102;

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Postgres {
    client: Frames,
    server: Frames,
    /// Whether the client has said who it is.
    begun: bool,
    /// Not this protocol: everything passes.
    opaque: bool,
    /// How many ReadyForQuery the client has asked for, the first one included that it gets unasked.
    asked: u64,
    /// How many the server has sent.
    ready: u64,
    /// Prepared statements that commit, and portals of them.
    statements: HashSet<Vec<u8>>,
    portals: HashSet<Vec<u8>>,
    /// Commits on their way: which ReadyForQuery ends their answer, and whether that is withheld.
    commits: VecDeque<(u64, bool)>,
}

impl Protocol for Postgres {
    fn opening(&self) -> usize {
        OPENING
    }

    fn declines(&self, opening: &[u8]) -> Option<&'static [u8]> {
        let wishes = matches!(code(opening), Some(WANTS_TLS | WANTS_GSS));
        wishes.then_some(b"N")
    }

    fn client_says(&mut self, bytes: &[u8], fate: &mut dyn FnMut() -> Fate) -> Onward {
        let mut onward = Onward::default();
        self.client.add(bytes);
        while let Some(piece) = self.next_of_client() {
            if let Piece::Frame(frame) = &piece
                && self.commits_with(frame)
            {
                match fate() {
                    Fate::NotForwarded => {
                        onward.cut = Some(Cut::BeforeCommit);
                        return onward;
                    }
                    fate => self.commits.push_back((self.asked, fate == Fate::NotAnswered)),
                }
            }
            if let Piece::Frame(frame) = &piece
                && matches!(frame[0], b'Q' | b'S' | b'F')
            {
                self.asked += 1;
            }
            onward.bytes.extend(piece.bytes());
        }
        onward
    }

    fn server_says(&mut self, bytes: &[u8]) -> Onward {
        let mut onward = Onward::default();
        self.server.add(bytes);
        while let Some(piece) = self.next_of_server() {
            if let Piece::Frame(frame) = &piece
                && self.withholds(frame)
            {
                onward.cut = Some(Cut::AnswerToCommit);
                return onward;
            }
            onward.bytes.extend(piece.bytes());
        }
        onward
    }
}

impl Postgres {
    /// The next piece from the client; takes note of what comes before the letters.
    fn next_of_client(&mut self) -> Option<Piece> {
        if self.opaque {
            return self.client.everything();
        }
        if self.begun {
            return self.client.next(1);
        }
        let piece = self.client.next(0)?;
        match code(&piece.bytes()) {
            Some(CANCELS) => {}
            Some(version) if version >> 16 == 3 => {
                self.begun = true;
                self.asked = 1;
            }
            _ => self.opaque = true,
        }
        // It has no letter, so nobody may look for one.
        Some(Piece::Part(piece.bytes()))
    }

    /// The next piece from the server.
    fn next_of_server(&mut self) -> Option<Piece> {
        if self.opaque {
            return self.server.everything();
        }
        self.server.next(1)
    }

    /// Whether a message of the client makes the server commit; takes note of what is prepared.
    fn commits_with(&mut self, frame: &[u8]) -> bool {
        let mut texts = frame[5..].split(|byte| *byte == 0);
        let mut text = || texts.next().unwrap_or_default();
        match frame[0] {
            b'Q' => is_commit(text()),
            b'P' => {
                let (name, statement) = (text(), text());
                note(&mut self.statements, name, is_commit(statement));
                false
            }
            b'B' => {
                let (portal, statement) = (text(), text());
                let commits = self.statements.contains(statement);
                note(&mut self.portals, portal, commits);
                false
            }
            b'C' => {
                let name = text();
                match name.split_first() {
                    Some((b'S', name)) => note(&mut self.statements, name, false),
                    Some((b'P', name)) => note(&mut self.portals, name, false),
                    _ => {}
                }
                false
            }
            b'E' => self.portals.contains(text()),
            _ => false,
        }
    }

    /// Whether a message of the server is the answer to a commit, and is withheld.
    fn withholds(&mut self, frame: &[u8]) -> bool {
        match frame[0] {
            b'Z' => {
                self.ready += 1;
                // Those that failed: an error has been the answer.
                while self.commits.pop_front_if(|(ends, _)| *ends < self.ready).is_some() {}
                false
            }
            // A failed transaction answers ROLLBACK.
            b'C' if frame[5..].starts_with(b"COMMIT\0") => {
                self.commits.pop_front_if(|(ends, _)| *ends == self.ready).is_some_and(|(_, withheld)| withheld)
            }
            _ => false,
        }
    }
}

/// The version, or what stands in its place, in a client's first message.
fn code(opening: &[u8]) -> Option<u32> {
    let code = opening.get(4..OPENING)?;
    Some(u32::from_be_bytes([code[0], code[1], code[2], code[3]]))
}

/// Whether a name stands for a commit from now on.
fn note(names: &mut HashSet<Vec<u8>>, name: &[u8], commits: bool) {
    if commits {
        names.insert(name.to_vec());
    } else {
        names.remove(name);
    }
}

/// Whether a text ends with a commit: also `commit work` and the like, but not of a prepared transaction. `end` counts
/// when it stands alone, since it ends other things too.
fn is_commit(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    let mut statements = text.rsplit(';').map(str::trim).filter(|statement| !statement.is_empty());
    let words: Vec<&str> = statements.next().unwrap_or_default().split_whitespace().collect();
    let commits = match words.first() {
        Some(&"commit") => true,
        Some(&"end") => statements.next().is_none(),
        _ => false,
    };
    commits && matches!(words.get(1), None | Some(&("work" | "transaction" | "and")))
}

/// A piece of a conversation.
#[derive(Debug)]
enum Piece {
    /// A whole message with its letter, or the beginning of a long one.
    Frame(Vec<u8>),
    /// Bytes that nobody looks at.
    Part(Vec<u8>),
}

impl Piece {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Frame(bytes) | Self::Part(bytes) => bytes.clone(),
        }
    }
}

/// Cuts one direction into messages.
#[derive(Debug, Default)]
struct Frames {
    kept: Vec<u8>,
    /// How many bytes of a long message are still to come.
    passing: usize,
}

impl Frames {
    fn add(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
    }

    /// Exactly so many bytes, which are there.
    fn take(&mut self, length: usize) -> Piece {
        Piece::Part(self.kept.drain(..length).collect())
    }

    /// All that is there.
    fn everything(&mut self) -> Option<Piece> {
        (!self.kept.is_empty()).then(|| self.take(self.kept.len()))
    }

    /// The next message, whose length stands behind so many bytes, or a part of a long one. None while more must come.
    fn next(&mut self, before: usize) -> Option<Piece> {
        if self.passing == 0 {
            let length = self.kept.get(before..before + 4)?;
            let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
            // A length below 4 breaks the protocol: it is passed on, and the other side will say so.
            let whole = before + usize::try_from(length.max(4)).unwrap_or(usize::MAX - before);
            let seen = whole.min(LONG);
            let frame = (self.kept.len() >= seen).then(|| self.kept.drain(..seen).collect())?;
            self.passing = whole - seen;
            return Some(Piece::Frame(frame));
        }
        let now = self.passing.min(self.kept.len());
        if now == 0 {
            return None;
        }
        self.passing -= now;
        Some(self.take(now))
    }
}
