//! Who may name whom. Each ban is one arrow that must not exist, or one thing that only one room may touch.

use super::lex::Token;
use super::paths::{Path, Reexports, paths};
use super::source::{Source, Tree, fits};
use super::{Exempt, Finding, Law, exempt};

/// Names that must not be written in some rooms.
struct Ban {
    law: Law,
    /// Where the ban holds, as patterns.
    rooms: &'static [&'static str],
    /// `name` is a word anywhere; `a::b` two neighbours in a path; `crate::a` the beginning of one, however it is
    /// spelled; `name(` a call.
    names: &'static [&'static str],
    except: &'static [Exempt],
    mend: &'static str,
}

const TESTS: Exempt = Exempt { path: "crates/*/tests/", reason: "a test looks behind the seam to see what is kept" };
const BENCHES: Exempt = Exempt { path: "crates/*/benches/", reason: "a bench measures against the raw floor" };
const EXAMPLES: Exempt = Exempt { path: "crates/*/examples/", reason: "an example is a user's program" };

static BANS: &[Ban] = &[
    Ban {
        law: Law {
            name: "pure model",
            why: "model/ is the law as a pure state machine: it serves as memory store, oracle and judge only as long \
                  as the same commands give the same answer, without a runtime, a clock, a coin or the outside world",
        },
        rooms: &["crates/hapax/src/model/"],
        names: &[
            "async",
            "await",
            "tokio",
            "sqlx",
            "rusqlite",
            "Instant",
            "SystemTime",
            "now(",
            "now_v7(",
            "rand",
            "fastrand",
            "tracing",
            "metrics",
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "std::thread",
            "std::process",
        ],
        except: &[],
        mend: "hand the model a value and do this in store/, client/ or host/",
    },
    Ban {
        law: Law {
            name: "model points nowhere",
            why: "server → host → client → store → model: nothing points back, so the law can be read alone",
        },
        rooms: &["crates/hapax/src/model/"],
        names: &[
            "crate::store",
            "crate::client",
            "crate::host",
            "crate::broker",
            "crate::testing",
            "crate::conformance",
            "crate::telemetry",
        ],
        except: &[],
        mend: "let the caller translate, or move the type into model/",
    },
    Ban {
        law: Law {
            name: "store points at the model",
            why: "a store keeps what the law says and knows neither who calls it nor what runs",
        },
        rooms: &["crates/hapax/src/store/", "crates/hapax/src/broker/"],
        names: &["crate::client", "crate::host", "crate::conformance"],
        except: &[],
        mend: "move the shared type down into store/ or model/",
    },
    Ban {
        law: Law { name: "client points at the store", why: "a program that only enqueues must not need a host" },
        rooms: &["crates/hapax/src/client/", "crates/hapax/src/conformance/"],
        names: &["crate::host"],
        except: &[],
        mend: "move the shared type down into client/ or store/",
    },
    Ban {
        law: Law {
            name: "broker points at the model",
            why: "a broker carries messages; where the rows are kept is none of its business",
        },
        rooms: &["crates/hapax/src/broker/"],
        names: &["crate::store"],
        except: &[],
        mend: "let host/relay.rs or host/consumer.rs bring the two together",
    },
    Ban {
        law: Law {
            name: "suite below the client",
            why: "the conformance suite proves stores; what client/ adds on top would hide what a store lacks",
        },
        rooms: &["crates/hapax/src/conformance/"],
        names: &["crate::client"],
        except: &[],
        mend: "call the store's own verb, or make it a test under tests/it/",
    },
    Ban {
        law: Law {
            name: "one store per name",
            why: "whoever names a concrete store works on that store only; everybody else talks to the traits",
        },
        rooms: &["crates/", "examples/"],
        names: &[
            "store::memory",
            "store::sqlite",
            "store::postgres",
            "store::mysql",
            "store::redis",
            "MemoryStore",
            "SqliteStore",
            "PostgresStore",
        ],
        except: &[
            Exempt { path: "crates/hapax/src/store/", reason: "this is where they live" },
            Exempt { path: "crates/hapax/src/lib.rs", reason: "re-exports for users" },
            Exempt { path: "crates/hapax/src/client/connect.rs", reason: "turns a URL into a store, once" },
            Exempt {
                path: "crates/hapax/src/host/effect.rs",
                reason: "effects in the user's transaction differ by store",
            },
            Exempt { path: "crates/hapax/src/host/effect/", reason: "the same, one file for each store" },
            Exempt { path: "crates/hapax/src/testing/", reason: "a user's test runs on the memory store" },
            Exempt {
                path: "crates/hapax-server/src/cli/demo/judge/postgres.rs",
                reason: "its effects are a user's, who takes a transaction of the store",
            },
            TESTS,
            BENCHES,
            EXAMPLES,
        ],
        mend: "take the trait from store/, or let client/connect.rs choose",
    },
    Ban {
        law: Law {
            name: "rusqlite in its room",
            why: "a driver that leaks out of its store ties everybody to that store and to the driver's version",
        },
        rooms: &["crates/", "examples/"],
        names: &["rusqlite"],
        except: &[
            Exempt { path: "crates/hapax/src/store/sqlite/", reason: "this is its room" },
            Exempt { path: "crates/hapax/src/lib.rs", reason: "re-exported, so that users name the same version" },
            Exempt {
                path: "crates/hapax/src/host/effect.rs",
                reason: "the user's effect gets the driver's transaction",
            },
            Exempt {
                path: "crates/hapax-server/src/cli/demo/judge/",
                reason: "judges the demo's own tables past the library that it judges",
            },
            Exempt { path: "examples/", reason: "an example is a user's program" },
            TESTS,
            BENCHES,
            EXAMPLES,
        ],
        mend: "put the statement into store/sqlite/ and give it a verb of the seam",
    },
    Ban {
        law: Law {
            name: "sqlx in its room",
            why: "a driver that leaks out of its store ties everybody to that store and to the driver's version",
        },
        rooms: &["crates/", "examples/"],
        names: &["sqlx"],
        except: &[
            Exempt { path: "crates/hapax/src/store/postgres/", reason: "this is one of its rooms" },
            Exempt { path: "crates/hapax/src/store/mysql/", reason: "this is the other" },
            Exempt { path: "crates/hapax/src/lib.rs", reason: "re-exported, so that users name the same version" },
            Exempt { path: "crates/hapax/src/client/connect.rs", reason: "a store is opened on the user's own pool" },
            Exempt { path: "crates/hapax/src/host/effect/", reason: "the user's effect gets the driver's transaction" },
            Exempt {
                path: "crates/hapax-server/src/cli/demo/judge/",
                reason: "judges the demo's own tables past the library that it judges",
            },
            Exempt { path: "examples/", reason: "an example is a user's program" },
            TESTS,
            BENCHES,
            EXAMPLES,
        ],
        mend: "put the statement into the store and give it a verb of the seam",
    },
    Ban {
        law: Law {
            name: "server crates in the server",
            why: "somebody who links the library must not build a web server and a command line",
        },
        rooms: &["crates/"],
        names: &["axum", "clap"],
        except: &[Exempt { path: "crates/hapax-server/", reason: "this is their crate" }],
        mend: "move it to crates/hapax-server",
    },
    Ban {
        law: Law {
            name: "one clock",
            why: "a clock that is read in many places cannot be moved by a test, and a wall clock compared with the \
                  store's gives a lease away too early",
        },
        rooms: &["crates/"],
        names: &["SystemTime::now", "Instant::now", "Timestamp::now", "Zoned::now", "clock_gettime"],
        except: &[
            Exempt { path: "crates/hapax/src/clock.rs", reason: "the one place that asks what time it is" },
            Exempt { path: "crates/hapax-server/src/cli/demo.rs", reason: "shows people the passing of time" },
            Exempt { path: "crates/hapax-server/src/exec/claim.rs", reason: "how long a caller is willing to wait" },
            Exempt { path: "crates/hapax-server/src/exec/patience.rs", reason: "the same, for one call of `exec`" },
            Exempt { path: "crates/hapax-server/src/cli/demo/", reason: "shows people the passing of time" },
            TESTS,
            BENCHES,
            EXAMPLES,
        ],
        mend: "ask crates/hapax/src/clock.rs",
    },
];

pub(super) fn laws() -> Vec<&'static Law> {
    BANS.iter().map(|ban| &ban.law).collect()
}

/// Every banned name that is written.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let reexports = Reexports::of(tree);
    let mut found = Vec::new();
    for source in tree.rust() {
        let bans: Vec<&Ban> = BANS.iter().filter(|ban| holds(ban, &source.path)).collect();
        if bans.is_empty() {
            continue;
        }
        let paths = paths(source, &reexports);
        for ban in bans {
            for name in ban.names {
                found.extend(lines(source, &paths, name).into_iter().map(|line| {
                    let what = format!("`{}` is named where it must not be", name.trim_end_matches('('));
                    Finding::new(&ban.law, (&source.path, line), what, ban.mend)
                }));
            }
        }
    }
    found
}

fn holds(ban: &Ban, path: &str) -> bool {
    ban.rooms.iter().any(|room| fits(room, path)) && !exempt(ban.except, path)
}

/// The lines on which a name of a ban occurs.
fn lines(source: &Source, paths: &[Path], name: &str) -> Vec<usize> {
    let tokens = &source.tokens;
    if let Some(call) = name.strip_suffix('(') {
        let called = |pair: &&[Token]| pair[0].is_word() && pair[0].is(call) && pair[1].is("(");
        return tokens.windows(2).filter(called).map(|pair| pair[0].line).collect();
    }
    let parts: Vec<&str> = name.split("::").collect();
    let same = |part: &[String]| part == parts.as_slice();
    match parts.as_slice() {
        [word] => tokens.iter().filter(|token| token.is_word() && token.is(word)).map(|token| token.line).collect(),
        ["crate", ..] => {
            let begins = |path: &&Path| path.segments.get(..parts.len()).is_some_and(same);
            paths.iter().filter(begins).map(|path| path.line).collect()
        }
        _ => {
            let contains = |path: &&Path| path.segments.windows(parts.len()).any(same);
            paths.iter().filter(contains).map(|path| path.line).collect()
        }
    }
}
