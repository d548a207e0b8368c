//! The statement files are what their heads say; the schema on one page is the schema; the plans stay what they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapax::JobState;
use hapax::store::Store;
use hapax::store::sqlite::SqliteStore;
use rusqlite::Connection;

use super::{Place, place};

fn room() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite")
}

fn texts(folder: &Path, ending: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(texts(&path, ending));
        } else if path.extension().is_some_and(|e| e == ending) {
            let name = path.strip_prefix(room()).expect("in the room").display().to_string();
            found.insert(name, std::fs::read_to_string(&path).expect("read"));
        }
    }
    found
}

fn statements() -> BTreeMap<String, String> {
    texts(&room().join("sql"), "sql")
}

struct Head {
    binds: Vec<String>,
    guard: Option<String>,
    set: Option<String>,
}

/// The lines of comment before the statement, joined where a line goes on.
fn head(file: &str, text: &str) -> Head {
    let stem = Path::new(file).file_stem().expect("a name").to_string_lossy();
    let lines: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    assert!(lines[0].starts_with(&format!("-- {stem}: ")), "{file}: the first line says `-- {stem}: what it does`");
    let whole = lines.iter().map(|line| line.trim_start_matches('-').trim()).collect::<Vec<_>>().join(" ");
    let part = |name: &str| {
        let rest = whole.split_once(&format!(" {name}: "))?.1;
        let ends = ["binds: ", "guard: ", "set: ", "differs from "]
            .into_iter()
            .filter_map(|next| rest.find(&format!(" {next}")));
        Some(rest[..ends.min().unwrap_or(rest.len())].trim().to_owned())
    };
    let binds = part("binds").unwrap_or_else(|| panic!("{file}: has no line `-- binds: …`"));
    let binds = if binds == "none" { Vec::new() } else { binds.split(", ").map(str::to_owned).collect() };
    Head { binds, guard: part("guard"), set: part("set") }
}

/// The statement without its comments.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("--").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

fn place_holders(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(':') {
        let word: String = code[at + 1..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
        let name = format!(":{word}");
        if !word.is_empty() && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[test]
fn heads_are_true() {
    for (file, text) in statements() {
        let (head, code) = (head(&file, &text), code(&text));
        assert_eq!(head.binds, place_holders(&code), "{file}: binds in the order of their first use");
        let word = code.split_whitespace().next().unwrap_or("");
        let changes = word == "update" || word == "delete" || code.contains("on conflict");
        assert!(head.guard.is_some() || !changes, "{file}: has no line `-- guard: …`");
        if let Some(guard) = head.guard.filter(|guard| !guard.starts_with("none, because ")) {
            let columns = guard.split(';').next().unwrap_or("");
            let condition = code.split_once("where").unwrap_or_else(|| panic!("{file}: guards without `where`")).1;
            for column in columns.split(", ") {
                assert!(condition.contains(column), "{file}: the guard `{column}` is not tested");
            }
        }
        assert!(text.lines().all(|line| line.len() <= 120), "{file}: a line is too long");
    }
}

#[test]
fn each_statement_is_named_once() {
    let sources: String = texts(&room(), "rs").into_values().collect();
    for file in statements().keys() {
        let named = sources.matches(&format!("include_str!(\"{file}\")")).count();
        assert_eq!(named, 1, "{file} is named {named} times");
    }
}

#[test]
fn cited_sets_are_those_of_the_law() {
    let sets = [
        ("CLAIMABLE", JobState::CLAIMABLE),
        ("CANCELLABLE", JobState::CANCELLABLE),
        ("RETRYABLE", JobState::RETRYABLE),
        ("PARKABLE", JobState::PARKABLE),
        ("PRUNABLE", JobState::PRUNABLE),
    ];
    let mut cited = 0;
    for (file, text) in statements() {
        let Some(name) = head(&file, &text).set else { continue };
        let (_, states) =
            sets.into_iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{file}: {name}"));
        let list = states.iter().map(|state| format!("'{state}'")).collect::<Vec<_>>().join(", ");
        let code = code(&text);
        let said = code.contains(&format!("state in ({list})"))
            || (states.len() == 1 && code.contains(&format!("state = {list}")));
        assert!(said, "{file}: does not test for {name}, {list}");
        cited += 1;
    }
    assert!(cited >= 4, "the claim and the pruner cite theirs");
    let migration = std::fs::read_to_string(room().join("migrations/0001_initial.sql")).expect("read");
    let all = JobState::ALL.map(|state| format!("'{state}'")).join(", ");
    assert!(migration.contains(&format!("state in ({all})")), "the schema knows every state");
    let prunable = JobState::PRUNABLE.iter().map(|state| format!("'{state}'")).collect::<Vec<_>>().join(", ");
    assert!(migration.contains(&format!("(state in ({prunable})) = (purge_at is not null)")));
}

#[test]
fn job_columns_are_read_in_one_order() {
    let columns = |text: &str, from: &str, to: &str| {
        let code = code(text);
        let start = code.find(from).expect("has them") + from.len();
        let list = code[start..].split(to).next().unwrap_or("").to_owned();
        list.split(',').map(|column| column.trim().to_owned()).collect::<Vec<_>>()
    };
    let all = statements();
    assert_eq!(
        columns(&all["sql/jobs/find.sql"], "select", "from hapax_jobs"),
        columns(&all["sql/jobs/claim.sql"], "returning", "\u{0}")
    );
}

async fn fresh() -> (Place, Connection) {
    let place = place();
    SqliteStore::open(&place.file).await.expect("opens").close().await;
    let connection = Connection::open(&place.file).expect("opens");
    (place, connection)
}

#[tokio::test]
async fn schema() {
    let (_place, connection) = fresh().await;
    let text = "select sql from sqlite_schema where name like 'hapax!_%' escape '!' and sql is not null \
                order by tbl_name, type desc, name";
    let mut tables = connection.prepare(text).expect("legal");
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).expect("read").collect::<Result<_, _>>().expect("read");
    let page = format!(
        "-- The whole schema after all migrations, for people: nothing reads it.\n\
         -- Rewritten by HAPAX_BLESS=1 cargo test --test it schema\n\n{};\n",
        tables.join(";\n\n")
    );
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite/schema.sql");
    if std::env::var_os("HAPAX_BLESS").is_some() {
        std::fs::write(&file, &page).expect("written");
    }
    let kept = std::fs::read_to_string(&file).expect("schema.sql is there");
    assert!(kept == page, "schema.sql is not the schema; look at it and bless it with HAPAX_BLESS=1");
}

/// The steps of a plan, as `explain query plan` names them.
fn plan(connection: &Connection, text: &str) -> Vec<String> {
    let mut explain = connection.prepare(&format!("explain query plan {text}")).expect("legal");
    // Its place-holders stay unbound: a plan does not depend on them.
    explain.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>().expect("read")
}

/// Whether the plan reads rows of the jobs one after the other, other than by the index of those that run.
fn scans_jobs(step: &str) -> bool {
    step.starts_with("SCAN hapax_jobs") && !step.ends_with("hapax_jobs_running")
}

#[tokio::test]
async fn plans() {
    let (_place, connection) = fresh().await;
    // Statistics of an empty file, and of one that is full of dead rows, must not turn a plan.
    connection.execute_batch("analyze").expect("legal");
    let uses = [
        // Covering: a job that nobody has a task for is passed over without reading its row.
        ("sql/jobs/pick.sql", "COVERING INDEX hapax_jobs_ready"),
        ("sql/jobs/pick_suspect.sql", "hapax_jobs_suspect"),
        ("sql/jobs/promote.sql", "hapax_jobs_scheduled"),
        ("sql/jobs/peek_ready.sql", "hapax_jobs_ready"),
        ("sql/jobs/peek_due.sql", "hapax_jobs_scheduled"),
        ("sql/jobs/peek_next.sql", "hapax_jobs_scheduled"),
        ("sql/jobs/of_claim.sql", "hapax_jobs_running"),
        ("sql/jobs/of_owner.sql", "hapax_jobs_running"),
        ("sql/jobs/reapable.sql", "hapax_jobs_running"),
        ("sql/jobs/purge.sql", "hapax_jobs_purge"),
        ("sql/keys/purge.sql", "hapax_keys_purge"),
        ("sql/keys/page.sql", "hapax_keys_by_value (scope=? AND value>? AND value<?)"),
        ("sql/instances/purge.sql", "hapax_jobs_running"),
        ("sql/inspect/count.sql", "COVERING INDEX hapax_jobs_by_state"),
        ("sql/inspect/page.sql", "COVERING INDEX hapax_jobs_by_state"),
        ("sql/inspect/queues.sql", "COVERING INDEX hapax_jobs_by_state"),
        ("sql/inspect/ready_kinds.sql", "hapax_jobs_ready"),
    ];
    let all = statements();
    for (file, index) in uses {
        let plan = plan(&connection, &all[file]);
        assert!(plan.iter().any(|step| step.contains(index)), "{file} does not use {index}: {plan:?}");
    }
    for (file, text) in &all {
        let plan = plan(&connection, text);
        let seeks = |step: &String| step.starts_with("SEARCH hapax_jobs USING INTEGER PRIMARY KEY");
        assert!(!file.ends_with("jobs/promote.sql") || plan.iter().any(seeks), "{plan:?}");
        assert!(!plan.iter().any(|step| scans_jobs(step)), "{file} reads every job: {plan:?}");
        let hot =
            ["pick", "promote", "purge", "done", "claim"].iter().any(|hot| file.ends_with(&format!("jobs/{hot}.sql")));
        let hot = hot || file.ends_with("keys/page.sql");
        assert!(!hot || !plan.iter().any(|step| step.contains("TEMP B-TREE")), "{file} sorts: {plan:?}");
    }
}
