//! A TCP proxy with faults, to be put between a client and its server: connections are cut, fall silent, get slow or
//! are refused when the test says so, and a COMMIT or its answer gets lost.
//!
//! It listens on the loopback and passes every byte on unchanged until it is told otherwise. What a protocol looks like
//! stands in a file of its own, of which there is [`postgres`] so far.
//!
//! This room does not know: stores, and what is in a statement other than whether it commits. Nor does it know TLS: a
//! client that asks for it is told that there is none, and most go on without, or no commit could be seen.

mod faults;
mod postgres;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use faults::{ProxyCounts, ProxyFaults, When};

use faults::{Fate, Shared};

/// How many bytes are read at once.
const CHUNK: usize = 16 * 1024;

/// A proxy with faults. It ends when it is dropped, and its connections with it.
///
/// ```no_run
/// use hapax::testing::{Proxy, When};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let proxy = Proxy::postgres("127.0.0.1:5432").await?;
/// let url = format!("postgres://postgres@{}/postgres", proxy.address());
/// // Of every ten commits that succeed, three seem not to.
/// proxy.faults().cut_answer_to_commit(0.3);
/// // … work with `url` …
/// assert!(proxy.counts().commits_not_answered > 0);
/// proxy.faults().mend();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: ProxyFaults,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// A proxy before a PostgreSQL server or a pooler that speaks like one. Chances are drawn with the seed 0. It
    /// declines TLS, so a client that insists on it does not get in.
    ///
    /// # Errors
    /// When the address of the server has no meaning here, or no port is free.
    pub async fn postgres(server: impl ToSocketAddrs) -> io::Result<Self> {
        Self::postgres_with_seed(server, 0).await
    }

    /// As [`postgres`](Self::postgres), with another seed. The n-th commit on the m-th connection has the same fate
    /// whenever seed and chances are the same, whatever the other connections do.
    ///
    /// # Errors
    /// When the address of the server has no meaning here, or no port is free.
    pub async fn postgres_with_seed(server: impl ToSocketAddrs, seed: u64) -> io::Result<Self> {
        Self::start(server, seed, || Box::new(postgres::Postgres::default())).await
    }

    /// A proxy before any server. It passes bytes on without looking at them, so commits are not seen.
    ///
    /// # Errors
    /// When the address of the server has no meaning here, or no port is free.
    pub async fn plain(server: impl ToSocketAddrs) -> io::Result<Self> {
        Self::start(server, 0, || Box::new(Plain)).await
    }

    async fn start(server: impl ToSocketAddrs, seed: u64, protocol: fn() -> Box<dyn Protocol>) -> io::Result<Self> {
        let server: Arc<[SocketAddr]> = lookup_host(server).await?.collect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(seed));
        let faults = ProxyFaults::new(Arc::clone(&shared));
        let accepting = tokio::spawn(accept(listener, shared, server, protocol));
        Ok(Self { address, faults, accepting })
    }

    /// Where clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What goes wrong: to be set and mended at any time, also from elsewhere by a clone.
    pub const fn faults(&self) -> &ProxyFaults {
        &self.faults
    }

    /// What has been done so far.
    pub fn counts(&self) -> ProxyCounts {
        self.faults.shared().counts()
    }

    /// The connections that are open, oldest first.
    pub fn connections(&self) -> Vec<ProxyConnection> {
        self.faults.shared().connections()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.faults.cut_all();
    }
}

/// One connection through a [`Proxy`].
#[derive(Clone, Debug)]
pub struct ProxyConnection {
    number: u64,
    cut: CancellationToken,
    silent: watch::Sender<bool>,
}

impl ProxyConnection {
    fn new(number: u64) -> Self {
        Self { number, cut: CancellationToken::new(), silent: watch::Sender::new(false) }
    }

    /// Its number, counted from 1 in the order in which connections came.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Closes both sides.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    /// Passes nothing on any more, in either direction, and closes nothing.
    pub fn blackhole(&self) {
        self.silent.send_replace(true);
    }

    /// Passes on again, what has come meanwhile first; unless all connections are silent.
    pub fn mend(&self) {
        self.silent.send_replace(false);
    }
}

/// What a protocol makes of the bytes on a connection. Whatever comes in goes out, in order and unchanged, until a cut.
trait Protocol: Send {
    /// How many bytes a client says at least before it waits for anything.
    fn opening(&self) -> usize;

    /// What to answer to an opening in the server's place, if it is a wish for encryption. The client opens again then.
    fn declines(&self, opening: &[u8]) -> Option<&'static [u8]>;

    /// The client says something. `fate` is asked once for each commit.
    fn client_says(&mut self, bytes: &[u8], fate: &mut dyn FnMut() -> Fate) -> Onward;

    /// The server says something.
    fn server_says(&mut self, bytes: &[u8]) -> Onward;
}

/// What to pass on, and whether to cut the connection after it.
#[derive(Debug, Default)]
struct Onward {
    bytes: Vec<u8>,
    cut: Option<Cut>,
}

/// Why a protocol cuts a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The commit was not passed on.
    BeforeCommit,
    /// It was, and has succeeded, and the answer was not passed on.
    AnswerToCommit,
}

/// Knows nothing.
struct Plain;

impl Protocol for Plain {
    fn opening(&self) -> usize {
        0
    }

    fn declines(&self, _opening: &[u8]) -> Option<&'static [u8]> {
        None
    }

    fn client_says(&mut self, bytes: &[u8], _fate: &mut dyn FnMut() -> Fate) -> Onward {
        Onward { bytes: bytes.to_vec(), cut: None }
    }

    fn server_says(&mut self, bytes: &[u8]) -> Onward {
        Onward { bytes: bytes.to_vec(), cut: None }
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    server: Arc<[SocketAddr]>,
    protocol: fn() -> Box<dyn Protocol>,
) {
    loop {
        // An accept that fails is about one client, who is gone.
        let Ok((client, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let Some(connection) = shared.admit() else { continue };
        let (shared, server) = (Arc::clone(&shared), Arc::clone(&server));
        tokio::spawn(async move {
            let link = Link { shared: &shared, connection: &connection, protocol: Mutex::new(protocol()) };
            tokio::select! {
                biased;
                () = connection.cut.cancelled() => shared.count(|counts| counts.cut += 1),
                () = link.carry(client, &server) => {}
            }
            shared.forget(connection.number);
        });
    }
}

/// A connection at work.
struct Link<'a> {
    shared: &'a Shared,
    connection: &'a ProxyConnection,
    protocol: Mutex<Box<dyn Protocol>>,
}

/// The end of a connection: a side is gone, or it was cut.
struct End;

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Link<'_> {
    /// Carries bytes both ways until both sides have said everything or one is gone. Dropping the sockets is the cut.
    async fn carry(&self, mut client: TcpStream, server: &[SocketAddr]) {
        let Ok(mut server) = TcpStream::connect(server).await else {
            self.shared.count(|counts| counts.unreachable += 1);
            return;
        };
        // Or a small answer waits for the next one, and the proxy is slow without being told to.
        if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
            return;
        }
        let Ok(opening) = self.open(&mut client).await else { return };
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let random = Mutex::new(self.shared.random(self.connection.number));
        let up = self.pump(opening.chain(from_client), to_server, |bytes| {
            let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
            self.protocol().client_says(bytes, &mut || self.shared.fate(&mut random))
        });
        let down = self.pump(from_server, to_client, |bytes| self.protocol().server_says(bytes));
        // An error of one ends the other as well.
        let _ = tokio::try_join!(up, down);
    }

    /// Hears how the client opens, and declines encryption.
    async fn open(&self, client: &mut TcpStream) -> Result<io::Cursor<Vec<u8>>, End> {
        let mut opening = vec![0; self.protocol().opening()];
        loop {
            client.read_exact(&mut opening).await?;
            let Some(answer) = self.protocol().declines(&opening) else { return Ok(io::Cursor::new(opening)) };
            self.shared.until_passable(self.connection.silent.subscribe()).await;
            client.write_all(answer).await?;
        }
    }

    fn protocol(&self) -> MutexGuard<'_, Box<dyn Protocol>> {
        self.protocol.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries bytes one way.
    async fn pump(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        says: impl Fn(&[u8]) -> Onward,
    ) -> Result<(), End> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let length = from.read(&mut chunk).await?;
            self.shared.until_passable(self.connection.silent.subscribe()).await;
            if length == 0 {
                to.shutdown().await?;
                return Ok(());
            }
            let onward = says(&chunk[..length]);
            to.write_all(&onward.bytes).await?;
            if let Some(cut) = onward.cut {
                // Before anybody can notice.
                self.shared.count(|counts| match cut {
                    Cut::BeforeCommit => counts.commits_not_forwarded += 1,
                    Cut::AnswerToCommit => counts.commits_not_answered += 1,
                });
                return Err(End);
            }
        }
    }
}
