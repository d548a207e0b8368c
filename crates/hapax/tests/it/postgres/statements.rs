//! Every statement file is one that the server understands, and the hot ones read by their indexes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sqlx::{Executor, PgConnection, Row};

use super::place::Place;

fn room() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/sql")
}

fn statements(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            statements(&path, found);
        } else {
            let name = path.strip_prefix(room()).expect("in the room").display().to_string();
            found.insert(name, std::fs::read_to_string(&path).expect("read"));
        }
    }
}

/// A statement as the store sends it: with `$1` for the first name, and so on, in the schema of the test.
fn translated(statement: &str, schema: &str) -> String {
    let code: String = statement
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .fold(String::new(), |text, line| text + line.split("--").next().unwrap_or("") + "\n");
    let mut names: Vec<&str> = Vec::new();
    let (mut text, mut rest) = (String::new(), code.as_str());
    while let Some(at) = rest.find(':') {
        let length = if rest[at..].starts_with("::") {
            None
        } else {
            rest[at + 1..].find(|c: char| !c.is_ascii_lowercase() && c != '_')
        };
        let Some(length) = length.filter(|length| *length > 0) else {
            text.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            continue;
        };
        let name = &rest[at + 1..=at + length];
        let number = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        text.push_str(&rest[..at]);
        text.push('$');
        text.push_str(&(number + 1).to_string());
        rest = &rest[at + 1 + length..];
    }
    (text + rest).replace("hapax.", &format!("{schema}."))
}

async fn prepare(connection: &mut PgConnection, (file, text): (&str, &str)) {
    let prepare = format!("prepare tried as {text}");
    let prepared = connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(prepare))).await;
    prepared.unwrap_or_else(|error| panic!("{file}: {error}\n{text}"));
}

async fn plan(connection: &mut PgConnection, (file, text): (&str, &str), values: &str) -> String {
    prepare(connection, (file, text)).await;
    let explain = format!("explain (costs off) execute tried{values}");
    let explained = sqlx::raw_sql(sqlx::AssertSqlSafe(explain)).fetch_all(&mut *connection).await;
    let rows = explained.unwrap_or_else(|error| panic!("{file}: {error}"));
    connection.execute("deallocate tried").await.expect("was prepared");
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_server_understands_every_statement() {
    let place = Place::new().await;
    let mut connection = place.connection().await;
    let mut all = BTreeMap::new();
    statements(&room(), &mut all);
    assert!(all.len() > 70, "{} statements", all.len());
    for (file, text) in &all {
        prepare(&mut connection, (file, &translated(text, &place.schema))).await;
        connection.execute("deallocate tried").await.expect("was prepared");
    }
}

/// Jobs of every state, and their keys.
const FILL: &str = "
    insert into jobs (id, queue, kind, payload_version, priority, state, due_at, enqueued_at, max_attempts,
                      retry_base_ms, retry_cap_ms, retry_jitter_percent, run_timeout_ms, keep_ms, payload,
                      fence, owner, claim, claimed_at, deadline, purge_at, suspect)
    select gen_random_uuid(), 'q' || n % 3, 'k' || n % 5, 1, n % 4, state, now() + n * interval '1 s', now(), 3,
           1, 1, 0, 1, 1, '{}', n,
           case when state = 'running' then uuid_send end, case when state = 'running' then uuid_send end,
           case when state = 'running' then now() end, case when state = 'running' then now() + interval '1 h' end,
           case when state = 'done' then now() + n * interval '1 s' end, n % 50 = 0 and state = 'ready'
      from generate_series(1, 2000) as n,
           unnest(array['scheduled', 'ready', 'running', 'done']) as state,
           lateral (select ('00000000-0000-0000-0000-0000000000' || lpad((n % 40)::text, 2, '0'))::uuid as uuid_send)
               as ids;
    insert into keys (boundary, scope, hash, value, state, job, attempts, since, keep_until, refused)
    select 'enqueue', 'k', sha256(convert_to(n::text, 'UTF8')), n::text, 'done', gen_random_uuid(), 0, now(),
           now() + n * interval '1 s', 0
      from generate_series(1, 4000) as n";

const NOBODY: &str = "00000000-0000-0000-0000-000000000001";

/// The hot statements, with values, and the index that each reads by.
fn hot() -> Vec<(&'static str, String, &'static str)> {
    let one = |values: &str| format!("({values})");
    vec![
        ("jobs/pick.sql", one("'q1', '{k1,k2}', 10"), "jobs_ready"),
        ("jobs/pick_suspect.sql", one("'q1', '{k1,k2}'"), "jobs_suspect"),
        ("jobs/promote.sql", one("now(), 1000"), "jobs_scheduled"),
        ("jobs/peek_next.sql", one("now()"), "jobs_scheduled"),
        ("jobs/claim.sql", format!("(7, '{NOBODY}', '{NOBODY}', now(), now(), '{{1,2,3}}')"), "jobs_pkey"),
        ("jobs/start.sql", format!("('{{{NOBODY}}}', now(), now(), '{{1}}', null)"), "jobs_id_key"),
        ("jobs/reapable.sql", one("now(), '{}', 100"), "jobs_running"),
        ("jobs/of_owner.sql", format!("('{NOBODY}')"), "jobs_running"),
        ("jobs/of_claim.sql", format!("('{NOBODY}', '{NOBODY}')"), "jobs_running"),
        ("runs/done.sql", format!("('{{{NOBODY}}}', now(), 600000, '{{1}}', '{{r}}')"), "jobs_id_key"),
        ("jobs/purge.sql", one("now(), 100"), "jobs_purge"),
        ("keys/purge.sql", one("now(), 100"), "keys_purge"),
        ("keys/find.sql", one(r"'{enqueue}', '{k}', '{\\x00}'"), "keys_boundary_scope_hash_key"),
    ]
}

#[tokio::test]
async fn plans_of_hot_statements_read_by_their_indexes() {
    let place = Place::new().await;
    let mut connection = place.connection().await;
    // As in each of the store's transactions.
    let settings = "set plan_cache_mode = force_custom_plan; set enable_seqscan = off; set jit = off";
    connection.execute(sqlx::raw_sql(settings)).await.expect("settings");
    let mut all = BTreeMap::new();
    statements(&room(), &mut all);
    // Statistics of empty tables must not turn a plan, nor those of full ones, nor those of one full of dead rows.
    let mut wrong = Vec::new();
    for content in ["", FILL, "delete from jobs; delete from keys"] {
        connection.execute(sqlx::raw_sql(content)).await.expect("legal");
        connection.execute(sqlx::raw_sql("analyze jobs, keys, instances, pauses, duplicates")).await.expect("legal");
        for (file, values, index) in hot() {
            let plan = plan(&mut connection, (file, &translated(&all[file], &place.schema)), &values).await;
            // The index for counts has every job in it, and the state only behind the queue.
            let reads_all = plan.contains("Seq Scan on jobs") || plan.contains("jobs_by_state");
            if reads_all || !plan.contains(index) {
                wrong.push(format!("{file} does not read by {index} alone after `{content}`\n{plan}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
