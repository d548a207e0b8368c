//! Each law is proved by a breach of it, planted in a tree of its own that is otherwise clean.

use std::fs;

use super::*;

/// The files of a small tree that breaks no law.
fn clean() -> Vec<(&'static str, String)> {
    let room = "//! The room.\n//! It is here\n//! to be clean\n//! and short. It does\n//! not know anything.\n";
    let claim = "-- claim: takes due jobs\n-- binds: :now, :limit\n-- guard: state\n\
                 update jobs set state = 'running' where state = 'ready' and due_at <= :now limit :limit;\n";
    vec![
        ("crates/hapax/src/lib.rs", "//! Once.\nmod clock;\nmod conformance;\nmod model;\nmod store;\n".into()),
        ("crates/hapax/src/clock.rs", "pub fn now() -> Instant { Instant::now() }\n".into()),
        ("crates/hapax/src/model/mod.rs", format!("{room}mod job;\n")),
        ("crates/hapax/src/model/job.rs", "/// Not `async`, not tokio.\nfn apply(now: u64) -> u64 { now }\n".into()),
        ("crates/hapax/src/store/mod.rs", format!("{room}pub mod sqlite;\n")),
        ("crates/hapax/src/store/sqlite/mod.rs", format!("{room}mod jobs;\n")),
        (
            "crates/hapax/src/store/sqlite/jobs.rs",
            "use rusqlite::Connection;\nconst CLAIM: &str = include_str!(\"sql/jobs/claim.sql\");\n".into(),
        ),
        ("crates/hapax/src/store/sqlite/sql/jobs/claim.sql", claim.into()),
        ("crates/hapax/src/conformance/mod.rs", format!("{room}mod jobs;\nlist!(jobs::a_job_is_claimed_once);\n")),
        ("crates/hapax/src/conformance/jobs.rs", "pub async fn a_job_is_claimed_once(h: &dyn Harness) {}\n".into()),
        ("crates/hapax/tests/it/main.rs", "//! One binary.\nmod sqlite;\n".into()),
        ("crates/hapax/tests/it/sqlite.rs", "hapax::conformance!(Sqlite);\n".into()),
        ("README.md", "# hapax\n".into()),
        (
            "docs/promises.md",
            "| promise | test |\n|---|---|\n| once | `conformance::jobs::a_job_is_claimed_once` |\n".into(),
        ),
    ]
}

/// What tidy says about the clean tree with some files put into it or replaced, one line for each breach.
fn said(planted: &[(&'static str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let planted = planted.iter().map(|(path, text)| (*path, (*text).to_string()));
    for (path, text) in clean().into_iter().chain(planted) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("every file is in a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    findings(&read(folder.path()).expect("a tree")).iter().map(ToString::to_string).collect()
}

/// Asserts that there is exactly one breach, and that it is at this place and says this.
#[track_caller]
fn only(planted: &[(&'static str, &str)], place: &str, what: &str) {
    let said = said(planted);
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].starts_with(place), "{said:#?}");
    assert!(said[0].contains(what), "{said:#?}");
}

const JOB: &str = "crates/hapax/src/model/job.rs";
const SQL: &str = "crates/hapax/src/store/sqlite/sql/jobs/claim.sql";

#[test]
fn this_tree_is_tidy() {
    let said: Vec<String> = findings(&read(&root()).expect("this tree")).iter().map(ToString::to_string).collect();
    assert!(said.is_empty(), "{} to mend:\n{}", said.len(), said.join("\n"));
}

#[test]
fn a_clean_tree_breaks_no_law() {
    assert_eq!(said(&[]), Vec::<String>::new());
}

#[test]
fn every_law_has_a_name_of_its_own_and_a_reason() {
    let laws: Vec<&Law> = KINDS.iter().flat_map(|(laws, _)| laws()).collect();
    assert!(laws.iter().all(|law| law.why.len() > 20));
    let names: std::collections::BTreeSet<&str> = laws.iter().map(|law| law.name).collect();
    assert_eq!(names.len(), laws.len());
}

#[test]
fn the_model_stays_pure() {
    // Two laws at once: the model is pure, and the driver has a room of its own.
    let said = said(&[(JOB, "// A line.\nuse rusqlite::Row;\n")]);
    assert!(said.iter().all(|line| line.starts_with(&format!("{JOB}:2: `rusqlite`"))), "{said:#?}");
    assert!(!said.is_empty());
    only(&[(JOB, "fn f() {}\npub async fn g() {}\n")], &format!("{JOB}:2:"), "`async`");
    only(&[(JOB, "fn f(now: Now) {}\nfn g() { h(); now() }\n")], &format!("{JOB}:2:"), "`now`");
}

#[test]
fn arrows_are_found_in_every_spelling() {
    for text in ["use crate::store::Store;", "use crate::{id, store::{self}};", "type S = super::store::Store;"] {
        let place = "crates/hapax/src/model/mod.rs";
        let text = format!("//! The room.\n//! It\n//! is\n//! here. It\n//! knows nothing.\nmod job;\n{text}\n");
        only(&[(place, &text)], &format!("{place}:7:"), "`crate::store`");
    }
}

#[test]
fn a_concrete_store_is_named_by_the_exempt_only() {
    let lib = "//! Once.\npub use store::sqlite::SqliteStore;\nmod clock;\nmod conformance;\nmod model;\nmod store;\n";
    assert_eq!(said(&[("crates/hapax/src/lib.rs", lib)]), Vec::<String>::new());
    let jobs = "crates/hapax/src/conformance/jobs.rs";
    let text = "pub async fn a_job_is_claimed_once(h: &dyn Harness) {}\nfn f() { SqliteStore::new() }\n";
    only(&[(jobs, text)], &format!("{jobs}:2:"), "`SqliteStore`");
}

#[test]
fn there_is_one_clock() {
    let jobs = "crates/hapax/src/store/sqlite/jobs.rs";
    let text = "const CLAIM: &str = include_str!(\"sql/jobs/claim.sql\");\nfn f() { std::time::Instant::now(); }\n";
    only(&[(jobs, text)], &format!("{jobs}:2:"), "`Instant::now`");
}

#[test]
fn what_is_too_long_is_found() {
    let file = "// A line.\n".repeat(700);
    only(&[(JOB, &file)], &format!("{JOB}:601:"), "700 lines");
    let function = format!("\nfn long() {{\n{}}}\n", "    step();\n".repeat(78));
    only(&[(JOB, &function)], &format!("{JOB}:2:"), "`long` has 80 lines");
    let line = format!("fn f() {{}}\n// {}\n", "x".repeat(118));
    only(&[(JOB, &line)], &format!("{JOB}:2:"), "121 columns");
}

#[test]
fn a_statement_has_a_header() {
    let said = said(&[(SQL, "select 1;\n")]);
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said[0].starts_with(&format!("{SQL}:1: the first line is not `-- claim: what it does`")), "{said:#?}");
    assert!(said[1].contains("no line `-- binds: …`"), "{said:#?}");
}

#[test]
fn a_statement_header_is_true() {
    let text = "-- claim: takes\n-- binds: :a\nselect :a,\n  :b;\n";
    only(&[(SQL, text)], &format!("{SQL}:4:"), "the bind `:b` is not in the header");
    let text = "-- claim: takes\n-- binds: :a, :b\nselect :a;\n";
    only(&[(SQL, text)], &format!("{SQL}:2:"), "lists `:b`");
    let text = "-- claim: takes\n-- binds: none\nselect 1; select 2;\n";
    only(&[(SQL, text)], &format!("{SQL}:3:"), "more than one statement");
}

#[test]
fn a_statement_guard_is_said_and_is_there() {
    let text = "-- claim: takes\n-- binds: none\nupdate jobs set state = 'running';\n";
    only(&[(SQL, text)], &format!("{SQL}:1:"), "no line `-- guard: …`");
    let text = "-- claim: takes\n-- binds: none\n-- guard: fence\nupdate jobs set fence = 1 where id = 2;\n";
    only(&[(SQL, text)], &format!("{SQL}:3:"), "the guard `fence` is not in the condition");
    let text = "-- claim: takes\n-- binds: none\n-- guard: none, because it is a test\nupdate jobs set fence = 1;\n";
    assert_eq!(said(&[(SQL, text)]), Vec::<String>::new());
}

#[test]
fn a_difference_is_from_a_store_that_is_there() {
    let text = "-- claim: takes\n-- binds: none\n-- differs from postgres: locks nothing\nselect 1;\n";
    only(&[(SQL, text)], &format!("{SQL}:3:"), "compares with `postgres`");
    let text = "-- claim: takes\n-- binds: none\n-- differs: locks nothing\nselect 1;\n";
    only(&[(SQL, text)], &format!("{SQL}:3:"), "is not `-- differs from STORE: why`");
}

#[test]
fn statements_that_are_translated_bind_by_name() {
    let place = "crates/hapax/src/store/postgres/sql/jobs/claim.sql";
    let around = [
        ("crates/hapax/src/store/mod.rs", "//! A\n//! b\n//! c\n//! d\n//! knows nothing\nmod sqlite; mod postgres;\n"),
        ("crates/hapax/src/store/postgres/mod.rs", "//! A\n//! b\n//! c\n//! d\n//! knows nothing\nmod jobs;\n"),
        ("crates/hapax/src/store/postgres/jobs.rs", "const A: &str = include_str!(\"sql/jobs/claim.sql\");\n"),
        ("crates/hapax/tests/it/main.rs", "mod sqlite; mod postgres;\n"),
        ("crates/hapax/tests/it/postgres.rs", "conformance!(Postgres);\n"),
    ];
    let with = |text: &'static str| [&around[..], &[(place, text)]].concat();
    let clean = "-- claim: takes\n-- binds: :ids, :at\n-- differs from sqlite: many\n\
                 select 'a: b'::text -- so: it is\n  -- Not :a bind.\n where id = any(:ids::uuid[]) and at < :at;\n";
    assert_eq!(said(&with(clean)), Vec::<String>::new());
    let numbered = "-- claim: takes\n-- binds: $1\nselect $1;\n";
    only(&with(numbered), &format!("{place}:3:"), "the bind `$1` is no `:name`");
    let digits = "-- claim: takes\n-- binds: :a1\nselect :a1;\n";
    only(&with(digits), &format!("{place}:3:"), "the bind `:a1` is no `:name`");
    for text in [
        "-- claim: takes\n-- binds: :a\nselect 'x:y', :a;\n",
        "-- claim: takes\n-- binds: :a\nselect :a -- not :b\n;\n",
    ] {
        only(&with(text), &format!("{place}:3:"), "looks like a bind");
    }
}

#[test]
fn sqlx_stays_with_the_stores_that_need_it() {
    let jobs = "crates/hapax/src/store/sqlite/jobs.rs";
    let text = "use sqlx::Row;\nconst CLAIM: &str = include_str!(\"sql/jobs/claim.sql\");\n";
    only(&[(jobs, text)], &format!("{jobs}:1:"), "`sqlx`");
}

#[test]
fn a_statement_is_used_exactly_once() {
    let jobs = "crates/hapax/src/store/sqlite/jobs.rs";
    only(&[(jobs, "// Nothing.\n")], &format!("{SQL}:1:"), "0 `include_str!`");
    let twice = "const A: &str = include_str!(\"sql/jobs/claim.sql\");\n\
                 const B: &str = include_str!(\"./sql/jobs/claim.sql\");\n";
    only(&[(jobs, twice)], &format!("{SQL}:1:"), "2 `include_str!`");
}

#[test]
fn the_schema_is_compared_by_a_test() {
    let schema = ("crates/hapax/src/store/sqlite/schema.sql", "create table jobs (id integer);\n");
    only(&[schema], "crates/hapax/src/store/sqlite/schema.sql:1:", "0 `include_str!`");
    let test = (
        "crates/hapax/tests/it/sqlite.rs",
        "conformance!(Sqlite);\nfn f() { read(\"src/store/sqlite/schema.sql\") }\n",
    );
    assert_eq!(said(&[schema, test]), Vec::<String>::new());
}

#[test]
fn a_banned_word_is_found_in_code_docs_and_messages() {
    only(&[(JOB, "fn f() {}\nfn dequeue_one() {}\n")], &format!("{JOB}:2:"), "\"dequeue\"");
    only(&[(JOB, "/// Moves it to the dead-letter table.\nfn f() {}\n")], &format!("{JOB}:1:"), "\"park\"");
    only(&[(JOB, "fn f() {\n    say(\"the job was nacked\")\n}\n")], &format!("{JOB}:2:"), "\"fail\"");
    only(&[(JOB, "fn f(fencing_token: u64) {}\n")], &format!("{JOB}:1:"), "\"fence\"");
    assert_eq!(
        said(&[(JOB, "/// Others call it a fencing token.\nfn f(t: CancellationToken) {}\n")]),
        Vec::<String>::new()
    );
}

#[test]
fn what_was_left_behind_is_found() {
    only(&[(JOB, "fn f() {\n    todo!()\n}\n")], &format!("{JOB}:2:"), "`todo!`");
    only(&[(JOB, "// TODO: later\n// TODO(#7): with an issue\n")], &format!("{JOB}:1:"), "`TODO`");
    only(&[(JOB, "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n")], &format!("{JOB}:2:"), "switched off");
    only(&[(JOB, "#[cfg_attr(test, allow(dead_code))]\nfn f() {}\n")], &format!("{JOB}:1:"), "`allow`");
    only(&[(JOB, "#![expect(dead_code)]\n")], &format!("{JOB}:1:"), "without a reason");
    assert_eq!(said(&[(JOB, "#[expect(dead_code, reason = \"a test\")]\nfn f() {}\n")]), Vec::<String>::new());
}

#[test]
fn a_dead_file_is_found() {
    let dead = "crates/hapax/src/model/dead.rs";
    only(&[(dead, "fn f() {}\n")], &format!("{dead}:1:"), "no module declares this file");
    let test = "crates/hapax/tests/it/dead.rs";
    only(&[(test, "fn f() {}\n")], &format!("{test}:1:"), "no module declares this file");
    assert_eq!(
        said(&[(JOB, "mod inner {\n    mod dead;\n}\n"), ("crates/hapax/src/model/job/inner/dead.rs", "")]),
        [""; 0]
    );
}

#[test]
fn a_room_says_what_it_does_not_know() {
    let place = "crates/hapax/src/model/mod.rs";
    only(&[(place, "//! Short.\nmod job;\n")], &format!("{place}:1:"), "has 1 lines");
    only(&[(place, "//! A\n//! b\n//! c\n//! d\n//! e\nmod job;\n")], &format!("{place}:1:"), "does not say");
}

#[test]
fn an_unlisted_case_is_found() {
    let jobs = "crates/hapax/src/conformance/jobs.rs";
    let case = "pub async fn a_job_is_claimed_once(h: &dyn Harness) {}\n\npub async fn forgotten(h: &dyn Harness) {}\n\
                pub fn helper(n: u64) {}\npub(super) async fn seed(h: &dyn Harness) {}\n";
    only(&[(jobs, case)], &format!("{jobs}:3:"), "no list has the case `jobs::forgotten`");
}

#[test]
fn every_store_runs_the_suite() {
    let test = "crates/hapax/tests/it/sqlite.rs";
    only(&[(test, "fn f() {}\n")], &format!("{test}:1:"), "does not run the conformance suite");
    let bare = "hapax::conformance!(S,\n  exempt: [\n(jobs::a_job_is_claimed_once, \" \")]);\n";
    only(&[(test, bare)], &format!("{test}:3:"), "has no reason");
    only(&[(test, "conformance!(S, exempt: [(gone, \"why\")]);\n")], &format!("{test}:1:"), "no case `gone`");
    let good = "conformance! { S, exempt: [(a_job_is_claimed_once, \"it has none\")] }\n";
    assert_eq!(said(&[(test, good)]), Vec::<String>::new());
    let mysql = ("crates/hapax/src/store/mysql.rs", "");
    let said = said(&[mysql, ("crates/hapax/src/store/mysql/jobs.rs", "")]);
    assert!(said.iter().any(|line| line.contains("no test file crates/hapax/tests/it/mysql.rs")), "{said:#?}");
}

#[test]
fn a_promise_names_its_test() {
    let page = "docs/promises.md";
    only(&[(page, "| a | b |\n|---|---|\n| once | see below |\n")], &format!("{page}:3:"), "names no test");
    only(&[(page, "| a | b |\n|---|---|\n| `T::x` | `it::gone` |\n")], &format!("{page}:3:"), "no test `it::gone`");
}

#[test]
fn a_readme_needs_the_page_of_promises() {
    let readme = source::Tree::of(&[("README.md", "# hapax\n")]);
    assert_eq!(findings(&readme).len(), 1);
    assert_eq!(findings(&source::Tree::of(&[])).len(), 0);
}
