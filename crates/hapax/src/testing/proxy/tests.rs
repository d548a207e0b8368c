//! The proxy between a client and a server that only speak in messages.

use std::net::Ipv4Addr;

use super::postgres::Postgres;
use super::*;
use crate::clock::Deadline;

/// A message with its letter and length.
fn message(letter: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short");
    [&[letter], &length.to_be_bytes()[..], body].concat()
}

/// The client's first message, which has no letter.
fn first(code: u32) -> Vec<u8> {
    message(0, &code.to_be_bytes())[1..].to_vec()
}

fn hello() -> Vec<u8> {
    first(196_608)
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
}

fn bind(portal: &str, statement: &str) -> Vec<u8> {
    message(b'B', format!("{portal}\0{statement}\0\0\0\0\0\0\0").as_bytes())
}

fn execute(portal: &str) -> Vec<u8> {
    message(b'E', format!("{portal}\0\0\0\0\0").as_bytes())
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn done(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// A talk that has begun.
fn begun() -> Postgres {
    let mut talk = Postgres::default();
    assert_eq!(talk.client_says(&hello(), &mut || Fate::Pass).bytes, hello());
    let welcome = [message(b'R', &[0; 4]), ready()].concat();
    assert_eq!(talk.server_says(&welcome).bytes, welcome);
    talk
}

/// How many commits are seen in what a client says.
fn commits(talk: &mut Postgres, says: &[u8]) -> u32 {
    let mut seen = 0;
    let onward = talk.client_says(says, &mut || {
        seen += 1;
        Fate::Pass
    });
    assert_eq!((onward.bytes.as_slice(), onward.cut), (says, None));
    seen
}

#[test]
fn commits_are_seen() {
    for text in
        ["COMMIT", " commit ; ", "Commit Work", "commit and no chain", "END;", "insert into t values (1);commit"]
    {
        assert_eq!(commits(&mut begun(), &query(text)), 1, "{text}");
    }
    let others = [
        "commit prepared 'x'",
        "insert into t values ('; commit')",
        "select commit",
        "committed",
        "",
        "rollback",
        "create function f() returns int begin atomic select 1; end",
        "do $$ begin null; end $$",
    ];
    for text in others {
        assert_eq!(commits(&mut begun(), &query(text)), 0, "{text}");
    }
}

#[test]
fn commits_of_prepared_statements_are_seen() {
    let mut talk = begun();
    assert_eq!(commits(&mut talk, &[parse("s1", "COMMIT"), bind("", "s1")].concat()), 0);
    assert_eq!(commits(&mut talk, &[execute(""), sync()].concat()), 1);
    // The nameless portal is another now, and later the same again.
    assert_eq!(commits(&mut talk, &[parse("", "select 1"), bind("", ""), execute(""), sync()].concat()), 0);
    assert_eq!(commits(&mut talk, &[bind("p", "s1"), execute("p"), sync()].concat()), 1);
    assert_eq!(commits(&mut talk, &[message(b'C', b"Ss1\0"), bind("p", "s1"), execute("p")].concat()), 0);
    let large = format!("insert into t values ('{}')", "x".repeat(2_000_000));
    assert_eq!(commits(&mut talk, &[parse("", "commit"), parse("", &large), bind("", ""), execute("")].concat()), 0);
}

#[test]
fn nothing_is_changed_in_whatever_portions_it_comes() {
    for portion in [1, 2, 5, 7, 4096, 16_384] {
        // One byte at a time is proof enough with few of them.
        let long = if portion < 7 { 300 } else { 3_000_000 };
        let large = format!("select '{}'", "x".repeat(long));
        let up = [hello(), query(&large), parse("s", "commit"), bind("", "s"), execute(""), sync()];
        let row = message(b'D', &vec![7; long]);
        let welcome = [message(b'R', &[0; 4]), ready()].concat();
        let down = [welcome, row, done("SELECT 1"), ready(), done("COMMIT"), ready()];
        let mut talk = Postgres::default();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let mut seen = 0;
        for bytes in up.concat().chunks(portion) {
            let onward = talk.client_says(bytes, &mut || {
                seen += 1;
                Fate::Pass
            });
            sent.extend(onward.bytes);
        }
        for bytes in down.concat().chunks(portion) {
            received.extend(talk.server_says(bytes).bytes);
        }
        assert_eq!(seen, 1, "in portions of {portion}");
        assert!(sent == up.concat() && received == down.concat(), "in portions of {portion}");
    }
}

#[test]
fn what_is_foreign_passes() {
    let mut foreign = Postgres::default();
    let http = b"GET / HTTP/1.1\r\n\r\n".repeat(100_000);
    let mut passed = Vec::new();
    for bytes in http.chunks(1000) {
        passed.extend(foreign.client_says(bytes, &mut || Fate::NotForwarded).bytes);
    }
    assert!(passed == http);
}

#[test]
fn a_commit_that_is_not_forwarded_ends_the_talk() {
    let mut talk = begun();
    let says = [query("select 1"), query("commit"), query("select 2")].concat();
    let onward = talk.client_says(&says, &mut || Fate::NotForwarded);
    assert_eq!((onward.bytes, onward.cut), (query("select 1"), Some(Cut::BeforeCommit)));
}

#[test]
fn an_answer_is_withheld_only_if_it_is_that_of_a_success() {
    let mut talk = begun();
    talk.client_says(&query("commit"), &mut || Fate::NotAnswered);
    let onward = talk.server_says(&[message(b'N', b"\0"), done("COMMIT"), ready()].concat());
    assert_eq!((onward.bytes, onward.cut), (message(b'N', b"\0"), Some(Cut::AnswerToCommit)));

    for answer in [done("ROLLBACK"), message(b'E', b"SERROR\0\0")] {
        let mut talk = begun();
        talk.client_says(&query("commit"), &mut || Fate::NotAnswered);
        let says = [answer, ready()].concat();
        assert_eq!(talk.server_says(&says).bytes, says);
        // And the next one is not taken for it.
        talk.client_says(&query("commit"), &mut || Fate::Pass);
        let says = [done("COMMIT"), ready()].concat();
        assert_eq!((talk.server_says(&says).bytes, talk.server_says(b"").cut), (says, None));
    }
}

#[test]
fn answers_of_a_pipeline_are_told_apart() {
    let mut talk = begun();
    let mut fates = [Fate::Pass, Fate::Pass, Fate::NotAnswered].into_iter();
    let says = [query("commit"), query("commit"), query("begin"), query("commit")].concat();
    assert_eq!(talk.client_says(&says, &mut || fates.next().expect("three commits")).bytes, says);
    // The first one fails.
    let passed = [message(b'E', b"SERROR\0\0"), ready(), done("COMMIT"), ready(), done("BEGIN"), ready()].concat();
    let onward = talk.server_says(&[passed.clone(), done("COMMIT"), ready()].concat());
    assert_eq!((onward.bytes, onward.cut), (passed, Some(Cut::AnswerToCommit)));
}

// ------------------------------------------------------------------------------------------------------ with sockets

/// A server that welcomes, and answers each query with its own text as a tag.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut hello = [0; 8];
                client.read_exact(&mut hello).await?;
                client.write_all(&ready()).await?;
                loop {
                    let (_, body) = receive(&mut client).await?;
                    client.write_all(&message(b'C', &body.to_ascii_uppercase())).await?;
                    client.write_all(&ready()).await?;
                }
                #[expect(unreachable_code, reason = "says what kind of result `?` gives")]
                io::Result::Ok(())
            });
        }
    });
    address
}

async fn receive(from: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await?;
    let mut body = vec![0; usize::from(head[4]) - 4];
    from.read_exact(&mut body).await?;
    Ok((head[0], body))
}

async fn client(proxy: &Proxy) -> io::Result<TcpStream> {
    let mut client = TcpStream::connect(proxy.address()).await?;
    client.write_all(&hello()).await?;
    receive(&mut client).await?;
    Ok(client)
}

/// Asks, and gives whether there was an answer.
async fn answers(client: &mut TcpStream, text: &str) -> bool {
    let asked = async {
        client.write_all(&query(text)).await?;
        let answer = receive(client).await?;
        assert_eq!(answer, (b'C', format!("{}\0", text.to_uppercase()).into_bytes()));
        receive(client).await
    };
    asked.await.is_ok()
}

#[tokio::test]
async fn connections_are_cut_and_refused() {
    let proxy = Proxy::postgres(server().await).await.expect("starts");
    let (mut a, mut b) = (client(&proxy).await.expect("in"), client(&proxy).await.expect("in"));
    assert!(answers(&mut a, "one").await && answers(&mut b, "two").await);
    let open = proxy.connections();
    assert_eq!(open.iter().map(ProxyConnection::number).collect::<Vec<_>>(), [1, 2]);

    open[0].cut();
    assert!(!answers(&mut a, "three").await);
    assert!(answers(&mut b, "four").await);

    proxy.faults().refuse();
    assert!(client(&proxy).await.is_err());
    assert!(answers(&mut b, "five").await, "it was there before");
    proxy.faults().cut_all();
    assert!(!answers(&mut b, "six").await);
    proxy.faults().mend();
    assert!(answers(&mut client(&proxy).await.expect("in"), "seven").await);
    assert_eq!(proxy.counts(), ProxyCounts { accepted: 3, refused: 1, cut: 2, ..ProxyCounts::default() });
}

#[tokio::test]
async fn a_silent_connection_is_slow_and_loses_nothing() {
    let proxy = Proxy::postgres(server().await).await.expect("starts");
    let (mut a, mut b) = (client(&proxy).await.expect("in"), client(&proxy).await.expect("in"));
    proxy.connections()[0].blackhole();
    a.write_all(&query("one")).await.expect("taken");
    assert!(answers(&mut b, "two").await);
    let mut answer = [0; 1];
    assert_eq!(a.try_read(&mut answer).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
    proxy.connections()[0].mend();
    assert_eq!(receive(&mut a).await.expect("an answer").0, b'C');
    assert_eq!(receive(&mut a).await.expect("an answer").0, b'Z');

    proxy.faults().blackhole();
    let (asked, mended) = tokio::join!(answers(&mut b, "three"), async {
        tokio::task::yield_now().await;
        proxy.faults().mend();
    });
    assert_eq!((asked, mended), (true, ()));
}

#[tokio::test]
async fn a_delay_counts_in_each_direction() {
    let proxy = Proxy::postgres(server().await).await.expect("starts");
    let mut a = client(&proxy).await.expect("in");
    proxy.faults().delay(std::time::Duration::from_millis(20));
    let earliest = Deadline::anchor().plus_ms(40);
    assert!(answers(&mut a, "one").await);
    assert!(earliest.passed());
}

#[tokio::test]
async fn encryption_is_declined_and_commits_are_seen() {
    let proxy = Proxy::postgres(server().await).await.expect("starts");
    let mut a = TcpStream::connect(proxy.address()).await.expect("in");
    for wish in [80_877_104, 80_877_103] {
        a.write_all(&first(wish)).await.expect("sent");
        assert_eq!(a.read_u8().await.expect("an answer"), b'N');
    }
    a.write_all(&hello()).await.expect("sent");
    assert_eq!(receive(&mut a).await.expect("welcome").0, b'Z');
    assert!(answers(&mut a, "commit").await);
    assert_eq!(proxy.counts().commits, 1);
}

#[tokio::test]
async fn a_server_that_is_gone_is_counted() {
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.and_then(|it| it.local_addr()).expect("a port");
    let proxy = Proxy::plain(gone).await.expect("starts");
    assert!(client(&proxy).await.is_err());
    assert_eq!(proxy.counts().unreachable, 1);
}

#[tokio::test]
async fn the_nth_commit_is_lost_or_its_answer() {
    let proxy = Proxy::postgres(server().await).await.expect("starts");
    proxy.faults().cut_before_commit(When::Nth(2));
    let mut a = client(&proxy).await.expect("in");
    assert!(answers(&mut a, "commit").await && answers(&mut a, "select").await);
    assert!(!answers(&mut a, "commit").await);
    proxy.faults().cut_answer_to_commit(1.0);
    let mut b = client(&proxy).await.expect("in");
    assert!(answers(&mut b, "select").await);
    assert!(!answers(&mut b, "commit").await);
    let counts = proxy.counts();
    assert_eq!((counts.commits, counts.commits_not_forwarded, counts.commits_not_answered), (3, 1, 1));
    proxy.faults().mend();
    assert!(answers(&mut client(&proxy).await.expect("in"), "commit").await);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_luck() {
    let mut lots = Vec::new();
    for seed in [1, 1, 2] {
        let proxy = Proxy::postgres_with_seed(server().await, seed).await.expect("starts");
        proxy.faults().cut_answer_to_commit(0.5);
        let mut lot = Vec::new();
        for _ in 0..20 {
            lot.push(answers(&mut client(&proxy).await.expect("in"), "commit").await);
        }
        let silent = u64::try_from(lot.iter().filter(|answered| !**answered).count()).expect("few");
        assert_eq!(proxy.counts().commits_not_answered, silent);
        lots.push(lot);
    }
    assert_eq!(lots[0], lots[1]);
    assert_ne!(lots[0], lots[2]);
    assert!(lots[0].contains(&true) && lots[0].contains(&false));
}
