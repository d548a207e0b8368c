//! A schema of a test's own in the server that the tests share, and a wire to it that can break.

use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use hapax::testing::{Proxy, ProxyFaults};
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Executor, PgConnection};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::cli::{Cli, Ran, bare, ran};

/// The server: from the environment, else as `cargo xtask services up` left it.
pub(crate) fn server() -> String {
    const NAME: &str = "HAPAX_TEST_POSTGRES_URL";
    if let Ok(value) = std::env::var(NAME) {
        return value;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/services/env");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(NAME)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{NAME} is not set; run `cargo xtask services up`")).to_owned()
}

/// The same server by way of another address, `HOST:PORT`.
pub(crate) fn by_way_of(server: &str, address: &str) -> String {
    let known = options(server);
    let direct = format!("{}:{}", known.get_host(), known.get_port());
    assert!(server.contains(&direct), "HAPAX_TEST_POSTGRES_URL names its host and port: {server}");
    server.replacen(&direct, address, 1)
}

pub(crate) fn options(url: &str) -> PgConnectOptions {
    let plain = url.split("schema=").next().unwrap_or(url).trim_end_matches(['?', '&']);
    PgConnectOptions::from_str(plain).expect("a URL of PostgreSQL")
}

/// The one text that a question gives.
pub(crate) fn ask(text: &str) -> String {
    let (options, text) = (options(&server()), text.to_owned());
    let work = move || {
        Runtime::new().expect("a runtime").block_on(async {
            let mut connection = PgConnection::connect_with(&options).await.expect("the server answers");
            sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(&mut connection).await
        })
    };
    std::thread::spawn(work).join().expect("the server answers").expect("one row of text")
}

/// Runs statements on the server, past the program that is tested.
pub(crate) fn sql(text: &str) {
    let (options, text) = (options(&server()), text.to_owned());
    // On a thread of its own: the test may be inside a runtime.
    let work = move || {
        Runtime::new().expect("a runtime").block_on(async {
            let mut connection = PgConnection::connect_with(&options).await.expect("the server answers");
            connection.execute("set lock_timeout = '10s'").await.expect("it is a setting");
            connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text))).await.map(drop)
        })
    };
    std::thread::spawn(work).join().expect("the server answers").expect("the statements work");
}

/// A schema that goes when it is dropped, and a folder.
pub(crate) struct Place {
    pub(crate) schema: String,
    pub(crate) cli: Cli,
}

impl Place {
    /// A name that no schema has yet.
    pub(crate) fn empty() -> Self {
        Self { schema: format!("hapax_test_{}", Uuid::now_v7().simple()), cli: Cli::new() }
    }

    /// A fresh schema with the tables in it, as `hapax migrate` makes them.
    pub(crate) fn new() -> Self {
        let place = Self::empty();
        place.text(&["migrate"]);
        place
    }

    /// The store in this schema.
    pub(crate) fn url(&self) -> String {
        self.at(&server())
    }

    /// The store, by way of another address of the server.
    pub(crate) fn at(&self, server: &str) -> String {
        format!("{server}{}schema={}", if server.contains('?') { '&' } else { '?' }, self.schema)
    }

    /// The program on this store.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_at(&self.url(), arguments)
    }

    /// The program on the store at this URL.
    pub(crate) fn command_at(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = bare(self.cli.folder());
        command.env("HAPAX_STORE_URL", url).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments), "")
    }

    /// Runs it, which must work, and gives its text.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    /// Runs it with `-o json`, which must work, and gives the document.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["-o", "json"]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.json()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let text = format!("drop schema if exists {} cascade", self.schema);
        let dropped = std::thread::spawn(move || sql(&text)).join();
        if !std::thread::panicking() {
            dropped.expect("the schema was dropped");
        }
    }
}

/// A way to the server that breaks when it is told to.
pub(crate) struct Wire {
    proxy: Proxy,
    // Dropped after the proxy, whose tasks it runs.
    runtime: Runtime,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let known = options(&server());
        let proxy = runtime.block_on(Proxy::postgres((known.get_host().to_owned(), known.get_port())));
        Self { proxy: proxy.expect("a free port"), runtime }
    }

    /// The server by way of it.
    pub(crate) fn server(&self) -> String {
        by_way_of(&server(), &self.proxy.address().to_string())
    }

    pub(crate) fn faults(&self) -> &ProxyFaults {
        self.proxy.faults()
    }

    /// A socket in this folder that leads to it, under the name that libpq gives it for port 5432. A file can be
    /// reached from every network of this machine.
    pub(crate) fn socket(&self, folder: &Path) {
        let address = self.proxy.address();
        let _inside = self.runtime.enter();
        let listener = tokio::net::UnixListener::bind(folder.join(".s.PGSQL.5432")).expect("a new socket");
        self.runtime.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                tokio::spawn(async move {
                    if let Ok(mut far) = tokio::net::TcpStream::connect(address).await {
                        // Either side may break it: that is what it is for.
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
    }
}
