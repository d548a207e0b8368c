//! Users of other drivers: psycopg and node-postgres call the SQL functions, and a host runs what they enqueue.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::host::State;
use hapax::{Hapax, Host, Job, JobId, JobState};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};

use super::functions::look;
use super::place::{Place, server, service};

#[derive(serde::Serialize, serde::Deserialize)]
struct Ship {
    order: i64,
}

impl Job for Ship {
    const KIND: &'static str = "ship";
}

/// What the task needs, and what it found: for each run the order, and whether its row was there.
#[derive(Clone)]
struct Shop {
    schema: String,
    found: Arc<Mutex<Vec<(i64, bool)>>>,
}

async fn ship(job: Ship, State(shop): State<Shop>) -> Result<(), hapax::BoxError> {
    let mut connection = PgConnection::connect(&server()).await?;
    let text = format!("select count(*) > 0 from {}.orders where id = $1", shop.schema);
    let there = sqlx::query_scalar(sqlx::AssertSqlSafe(text)).bind(job.order).fetch_one(&mut connection).await?;
    shop.found.lock().expect("not poisoned").push((job.order, there));
    Ok(())
}

/// A program in another language.
struct Client {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    /// What it says next.
    fn says(&mut self) -> Value {
        let line = self.lines.next().expect("it says more").expect("text");
        serde_json::from_str(&line).expect("JSON")
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn script(name: &str) -> String {
    format!("{}/tests/it/postgres/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn python() -> Command {
    Command::new(service("HAPAX_TEST_PYTHON"))
}

fn node() -> Command {
    let mut command = Command::new("node");
    command.env("HAPAX_TEST_NODE_MODULES", service("HAPAX_TEST_NODE_MODULES"));
    command
}

async fn with_orders() -> Place {
    let place = Place::new().await;
    place.connection().await.execute("create table orders (id bigint primary key)").await.expect("made");
    place
}

/// RC-67, RC-55: the whole way of one driver. `nul` is what it says of a NUL character.
async fn calls(mut command: Command, nul: Value) {
    let place = with_orders().await;
    let store = place.store().await;
    let found = Arc::new(Mutex::new(Vec::new()));
    let shop = Shop { schema: place.schema.clone(), found: found.clone() };
    let host = Host::builder(Hapax::with_store(Arc::new(store.clone())), shop).poll(Duration::from_millis(20));
    let host = host.task(ship).start().await.expect("starts");
    command.arg(server()).arg(&place.schema);
    let mut client = Client::start(command);

    assert_eq!(client.says(), json!(["rolled back", 0]));
    let open = client.says();
    assert_eq!((&open[0], &open[2], &open[3]), (&json!("open"), &json!(false), &json!(false)));
    let id: JobId = open[1].as_str().expect("text").parse().expect("an id");
    // Nothing to wait for: that idle workers find nothing is the case itself.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(found.lock().expect("not poisoned").is_empty() && store_knows(&store, id).await.is_none());
    client.go_on();
    assert_eq!(client.says(), json!(["committed"]));
    let done = async {
        while store_knows(&store, id).await != Some(JobState::Done) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), done).await.expect("the job runs after the commit");
    assert_eq!(*found.lock().expect("not poisoned"), [(2, true)]);
    host.drain().await;

    client.go_on();
    assert_eq!(client.says(), json!(["duplicate", true, true, true]));
    assert_eq!(client.says(), json!(["once", true, false]));
    let other = client.says();
    assert_eq!((&other[0], &other[1]), (&json!("other work"), &json!("HX001")));
    let text = other[2].as_str().expect("text");
    assert!(text.contains("once key `order-2` stands for other work") && text.contains(&id.to_string()), "{text}");
    assert_eq!(client.says(), json!(["no JSON", "22023", "payload is not JSON"]));
    assert_eq!(client.says(), json!(["empty kind", "22023", "kind is empty"]));
    assert_eq!(client.says(), nul);
    assert!(client.child.wait().expect("ended").success());
    assert_eq!(look(&store, id).await.runs, 1);
}

async fn store_knows(store: &hapax::store::postgres::PostgresStore, id: JobId) -> Option<JobState> {
    hapax::store::Inspect::job(store, id).await.expect("read").map(|(job, _)| job.state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psycopg_enqueues_in_its_own_transaction() {
    let mut command = python();
    command.arg(script("calls.py"));
    calls(command, json!(["NUL", null, "PostgreSQL text fields cannot contain NUL (0x00) bytes"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_enqueues_in_its_own_transaction() {
    let mut command = node();
    command.arg(script("calls.mjs"));
    calls(command, json!(["NUL", "22021", "invalid byte sequence for encoding \"UTF8\": 0x00"])).await;
}

/// The blocks of one language in the recipe.
fn blocks(language: &str) -> Vec<&'static str> {
    let recipe = include_str!("../../../../../docs/recipes/enqueue-from-sql.md");
    let fence = format!("```{language}\n");
    recipe.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Each example of the recipe as it stands there, on a schema of the test's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recipe_runs_as_it_stands() {
    let place = with_orders().await;
    let ours = |text: &str| text.replace("hapax.", &format!("{}.", place.schema));
    let separator = if server().contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}options=-csearch_path%3D{}", server(), place.schema);
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(service("HAPAX_TEST_NODE_MODULES"), folder.path().join("node_modules")).expect("linked");
    for (language, file, mut command) in [("python", "try.py", python()), ("js", "try.mjs", node())] {
        assert!(!blocks(language).is_empty(), "{language}");
        std::fs::write(folder.path().join(file), ours(&blocks(language).join("\n"))).expect("written");
        let ran = command.arg(file).current_dir(folder.path()).env("DATABASE_URL", &url).output().expect("starts");
        assert!(ran.status.success(), "{language}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    let mut own = place.connection().await;
    for block in blocks("sql").into_iter().filter(|block| !block.contains("grant ")) {
        let ran = own.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(ours(block)))).await;
        ran.unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
    let (orders, jobs): (i64, i64) =
        sqlx::query_as("select (select count(*) from orders), (select count(*) from jobs where kind = 'ship-order')")
            .fetch_one(&mut own)
            .await
            .expect("read");
    assert_eq!((orders, jobs), (3, 3), "one by each example");
}
