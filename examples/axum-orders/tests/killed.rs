//! The service is killed twice while orders come in: every order that was answered is there, and each is shipped once.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The server: from the environment, else as `cargo xtask services up` left it.
fn server() -> String {
    let name = "HAPAX_TEST_POSTGRES_URL";
    if let Ok(value) = std::env::var(name) {
        return value;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/services/env");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{name} is not set; run `cargo xtask services up`")).to_owned()
}

async fn execute(url: &str, text: String) {
    let mut connection = PgConnection::connect(url).await.expect("the server answers");
    connection.execute(sqlx::AssertSqlSafe(text)).await.expect("it is allowed");
}

/// A database of the test's own, gone when the test ends well or badly.
struct Database(String);

impl Drop for Database {
    fn drop(&mut self) {
        let text = format!("drop database if exists {} with (force)", self.0);
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(execute(&server(), text));
        };
        std::thread::spawn(work).join().expect("the database was dropped");
    }
}

/// Starts the service; gives it and where it listens.
async fn start(url: &str) -> (Child, String) {
    let mut service = Command::new(env!("CARGO_BIN_EXE_axum-orders"))
        .env("DATABASE_URL", url)
        .env("PORT", "0")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(service.stdout.take().expect("it is piped")).lines();
    let line = lines.next_line().await.expect("readable").expect("it says where it listens");
    (service, line.strip_prefix("listening on ").expect("the address").to_owned())
}

/// Orders once; whether the order was answered.
async fn order(address: &str) -> bool {
    let body = r#"{"item":"book"}"#;
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: \
         {}\r\n\r\n{body}",
        body.len()
    );
    let Ok(mut stream) = TcpStream::connect(address).await else { return false };
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.starts_with("HTTP/1.1 201")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answered_order_is_shipped_once() {
    let name = format!("hapax_test_{}", uuid::Uuid::now_v7().simple());
    execute(&server(), format!("create database {name}")).await;
    let _database = Database(name.clone());
    let (base, _) = server().rsplit_once('/').map(|(base, rest)| (base.to_owned(), rest.to_owned())).expect("a URL");
    let url = format!("{base}/{name}");

    let mut answered: i64 = 0;
    for kills in [true, true, false] {
        let (mut service, address) = start(&url).await;
        for n in 0..60 {
            if kills && n == 40 {
                // In the middle of its work, with orders on their way.
                let late = tokio::spawn({
                    let address = address.clone();
                    async move { order(&address).await }
                });
                service.kill().await.expect("it runs");
                answered += i64::from(late.await.expect("no panic"));
                break;
            }
            answered += i64::from(order(&address).await);
        }
        if kills {
            continue;
        }
        let mut shop = PgConnection::connect(&url).await.expect("the server answers");
        let begun = Instant::now();
        loop {
            let text = "select (select count(*) from orders), (select count(*) from shipments),
                               (select count(distinct order_id) from shipments)";
            let row = shop.fetch_one(text).await.expect("it answers");
            let (orders, shipments, shipped): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            assert!(
                shipments <= orders && shipments == shipped,
                "{shipments} shipments of {shipped} of {orders} orders"
            );
            if orders == shipped {
                assert!(orders >= answered && answered >= 120, "{orders} orders, {answered} answered");
                break;
            }
            assert!(begun.elapsed() < Duration::from_mins(2), "{shipped} of {orders} orders are shipped");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
