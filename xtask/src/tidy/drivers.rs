//! A store's driver in the public API: only where a user hands over a transaction or a pool of the driver's.

use std::collections::BTreeSet;

use super::items::closing;
use super::lex::Token;
use super::paths::unfold;
use super::source::{Source, Tree, fits};
use super::{Exempt, Finding, Law, exempt};

static HIDDEN: Law = Law {
    name: "driver behind the store",
    why: "a driver's type in the public API makes every major version of the driver one of ours",
};

/// Rooms and the driver that each is about.
const ROOMS: [(&str, &str); 3] = [
    ("crates/hapax/src/store/sqlite/", "rusqlite"),
    ("crates/hapax/src/store/postgres/", "sqlx"),
    ("crates/hapax/src/store/mysql/", "sqlx"),
];

const SHOWN: &[Exempt] = &[
    Exempt { path: "crates/hapax/src/store/*/tx.rs", reason: "the user's own transaction is one of the driver's" },
    Exempt { path: "crates/hapax/src/store/*/tx/", reason: "the same" },
    Exempt { path: "crates/hapax/src/store/*/options.rs", reason: "a store can be opened on the user's own pool" },
    Exempt { path: "crates/hapax/src/store/*/options/", reason: "the same" },
    Exempt { path: "crates/hapax/src/store/*/mod.rs", reason: "the same, and re-exports of the two" },
];

pub(super) fn laws() -> Vec<&'static Law> {
    vec![&HIDDEN]
}

/// Every public item that names a driver where it should not.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.rust().filter(|source| !exempt(SHOWN, &source.path)) {
        for (_, driver) in ROOMS.iter().filter(|(room, _)| fits(room, &source.path)) {
            found.extend(shown(source, driver).into_iter().map(|(name, line)| {
                let what = format!("a public item names `{name}` of the driver {driver}");
                let mend = "make the item `pub(super)`, or let tx.rs or options.rs offer it";
                Finding::new(&HIDDEN, (&source.path, line), what, mend)
            }));
        }
    }
    found
}

/// What public items of a file name of a driver, with the lines.
fn shown(source: &Source, driver: &str) -> Vec<(String, usize)> {
    let tokens = &source.tokens;
    let mut names = BTreeSet::from([driver.to_string()]);
    for index in (0..tokens.len()).filter(|index| tokens[*index].is("use")) {
        let used = unfold(tokens, index + 1, &mut 0);
        names.extend(used.into_iter().filter(|used| used.segments[0] == driver).map(|used| used.known_as));
    }
    let mut found = Vec::new();
    for index in (0..tokens.len()).filter(|index| tokens[*index].is("pub")) {
        let first = item(tokens, index + 1).iter().find(|token| token.is_word() && names.contains(&token.text));
        found.extend(first.map(|token| (token.text.clone(), token.line)));
    }
    found
}

/// What of the item behind `pub` others can see: all of an enum, else what comes before a body or the next field. Empty
/// for `pub(crate)` and the like.
fn item(tokens: &[Token], begin: usize) -> &[Token] {
    let restricted = tokens.get(begin).is_some_and(|token| token.is("("));
    if restricted {
        return &[];
    }
    let kind = tokens.get(begin).map_or("", |token| token.text.as_str());
    let mut at = begin;
    while let Some(token) = tokens.get(at) {
        let body = token.is("{");
        // The fields of a struct have a `pub` of their own.
        let ends = token.is(";") || token.is("}") || token.is(",") || (kind == "struct" && token.is("("));
        if ends || (body && kind != "enum" && kind != "use") {
            break;
        }
        if body {
            at = closing(tokens, at);
            break;
        }
        at = if token.is("(") || token.is("[") { closing(tokens, at) + 1 } else { at + 1 };
    }
    &tokens[begin..at.min(tokens.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn public_items_do_not_name_the_driver() {
        let text = "use sqlx::{PgPool, postgres::PgRow as Row};\n\
                    pub fn a(pool: &PgPool) {}\n\
                    pub struct B(PgPool);\n\
                    pub struct C {\n pub pool: PgPool,\n x: PgPool,\n}\n\
                    pub enum D { One(Row) }\n\
                    pub use sqlx::{Error};\n\
                    pub const fn e() -> u32 { Row::x() }\n\
                    pub(crate) fn f(pool: PgPool) -> sqlx::Result<()> { g() }\n\
                    pub async fn h() -> sqlx::Result<()> { g() }\n";
        assert_eq!(lines("crates/hapax/src/store/postgres/rows.rs", text), [2, 5, 8, 9, 12]);
        assert_eq!(lines("crates/hapax/src/store/postgres/tx.rs", text), [0; 0]);
        assert_eq!(lines("crates/hapax/src/store/postgres/options/pool.rs", text), [0; 0]);
        assert_eq!(lines("crates/hapax/src/store/sqlite/rows.rs", text), [0; 0]);
    }
}
