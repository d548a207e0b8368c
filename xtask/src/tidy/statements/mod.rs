//! Statement files: each is used exactly once and its header is true. The header is what a reviewer, and later somebody
//! with another driver, trusts without reading the statement.
//!
//! ```sql
//! -- finish: ends a run with its outcome          the file's name, then what it does
//! -- binds: :id, :fence, :outcome                 every bind of the text and no other, or `none`
//! -- guard: state, fence; why, if that helps      words that stand behind `where`, or `none, because …`
//! -- differs from sqlite: locks what it picks     if another store's statement of that name does something else
//! -- anything else
//! update jobs …
//! ```
//!
//! An entry goes on over lines that are indented by two blanks or more. This room reads text; whether a statement
//! prepares it does not know, and the store's own tests do.

mod header;
mod sql;

use std::collections::{BTreeMap, BTreeSet};

use super::dead::join;
use super::lex::Kind;
use super::source::{Source, Tree, fits, has_ending};
use super::{Finding, Law};
use header::{Entry, Header};

static USED: Law = Law {
    name: "statement used once",
    why: "a statement with two users is changed for one of them, and one without a user is changed for nobody",
};
static HEADER: Law = Law {
    name: "statement header",
    why: "the header is what people trust without reading the statement, so it must be there and be true",
};
static GUARD: Law = Law {
    name: "statement guard",
    why: "every write that may come late is conditional, on the fence or on the state; its guard is said and is there",
};

static BY_NAME: Law = Law {
    name: "statement binds by name",
    why: "numbers are put for `:name` at run time by a reader that knows neither strings nor other kinds of binds",
};

const STORES: &str = "crates/hapax/src/store/";

/// Where statements are translated before the server sees them.
const TRANSLATED: &str = "crates/hapax/src/store/postgres/";

pub(super) fn laws() -> Vec<&'static Law> {
    vec![&USED, &HEADER, &GUARD, &BY_NAME]
}

/// Every statement that is not used once or whose header is not true.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let uses = uses(tree);
    let mut found = Vec::new();
    for source in tree.below(STORES).filter(|source| has_ending(&source.path, &["sql", "lua"])) {
        found.extend(used_once(tree, source, uses.get(&source.path).copied().unwrap_or_default()));
        if let Some(room) = room(&source.path) {
            let statement = Statement { source, room, header: Header::of(&source.text) };
            statement.name(&mut found);
            statement.binds(&mut found);
            statement.guard(&mut found);
            statement.single(&mut found);
            statement.differs(tree, &mut found);
            if source.path.starts_with(TRANSLATED) {
                statement.translates(&mut found);
            }
        }
    }
    found
}

/// How often each file is named by an `include_str!`.
fn uses(tree: &Tree) -> BTreeMap<String, usize> {
    let mut uses = BTreeMap::new();
    for source in tree.rust() {
        for call in source.tokens.windows(4) {
            if call[0].is("include_str") && call[1].is("!") && call[3].kind == Kind::Text {
                *uses.entry(join(source.folder(), &call[3].text)).or_insert(0) += 1;
            }
        }
    }
    uses
}

/// Whether a file has exactly one user. A store's `schema.sql` may instead be named by a test that compares it.
fn used_once(tree: &Tree, source: &Source, count: usize) -> Option<Finding> {
    let short = source.path.strip_prefix(STORES).unwrap_or(&source.path);
    let compared = || {
        let tests = tree.rust().filter(|file| fits("crates/*/tests/", &file.path));
        tests.flat_map(|file| &file.tokens).any(|token| token.kind == Kind::Text && token.text.ends_with(short))
    };
    if count == 1 || (count == 0 && source.stem() == "schema" && compared()) {
        return None;
    }
    let what = format!("{count} `include_str!` name this file, not one");
    let mend = if count == 0 { "use it or delete it" } else { "let one function bind it and the others call that" };
    Some(Finding::new(&USED, (&source.path, 1), what, mend))
}

/// The room of a statement: the folder below `sql/` or `lua/`. None for the schema and its migrations.
fn room(path: &str) -> Option<&str> {
    if path.contains("/migrations/") || path.ends_with("/schema.sql") {
        return None;
    }
    let (_, inside) = path.split_once("/sql/").or_else(|| path.split_once("/lua/"))?;
    Some(inside.split_once('/').map_or("", |(room, _)| room))
}

/// A statement file with its parts.
struct Statement<'a> {
    source: &'a Source,
    room: &'a str,
    header: Header,
}

impl Statement<'_> {
    fn at(&self, line: usize) -> (&str, usize) {
        (&self.source.path, line)
    }

    fn is_lua(&self) -> bool {
        has_ending(&self.source.path, &["lua"])
    }

    /// The first line is `-- name: what it does`.
    fn name(&self, found: &mut Vec<Finding>) {
        let stem = self.source.stem();
        if self.header.title.as_ref().is_none_or(|(name, does)| name != stem || does.is_empty()) {
            let what = format!("the first line is not `-- {stem}: what it does`");
            found.push(Finding::new(&HEADER, self.at(1), what, "say in one line what the statement does"));
        }
    }

    /// The binds of the header are those of the text.
    fn binds(&self, found: &mut Vec<Finding>) {
        let Some(entry) = &self.header.binds else {
            let what = "the header has no line `-- binds: …`".to_string();
            return found.push(Finding::new(&HEADER, self.at(1), what, "list every bind, or write `-- binds: none`"));
        };
        let used = sql::binds(&self.header.body, self.is_lua());
        let listed = sql::binds(&entry.text, self.is_lua());
        let names = |binds: &[(String, usize)]| binds.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>();
        let (used_names, listed_names) = (names(&used), names(&listed));
        let mut told = BTreeSet::new();
        for (name, offset) in used.iter().filter(|(name, _)| !listed_names.contains(name)) {
            if told.insert(name) {
                let what = format!("the bind `{name}` is not in the header");
                found.push(Finding::new(
                    &HEADER,
                    self.at(self.header.body_line + offset),
                    what,
                    "add it to `-- binds:`",
                ));
            }
        }
        for name in listed_names.difference(&used_names) {
            let what = format!("the header lists `{name}`, which the statement does not bind");
            found.push(Finding::new(&HEADER, self.at(entry.line), what, "take it out of `-- binds:`"));
        }
        // Nameless binds can only be counted.
        let count = |binds: &[(String, usize)]| binds.iter().filter(|(name, _)| name == "?").count();
        if count(&used) != count(&listed) && count(&used) * count(&listed) > 0 {
            let what = format!("the header lists {} binds `?`, the text has {}", count(&listed), count(&used));
            found.push(Finding::new(&HEADER, self.at(entry.line), what, "write one `? name` for each, in their order"));
        }
        if listed.is_empty() && entry.text.trim() != "none" {
            let what = "`-- binds:` lists nothing".to_string();
            found.push(Finding::new(&HEADER, self.at(entry.line), what, "write binds as the text does, or `none`"));
        }
    }

    /// A write that may come late names its guard, and a named guard is there.
    fn guard(&self, found: &mut Vec<Finding>) {
        let Some(entry) = &self.header.guard else {
            if self.is_lua() || sql::writes(&self.header.body) {
                let what = format!("a write in {}/ has no line `-- guard: …`", self.room);
                let mend = "name the words that guard it, or write `-- guard: none, because …`";
                found.push(Finding::new(&GUARD, self.at(1), what, mend));
            }
            return;
        };
        match header::guard(entry) {
            Err(what) => {
                let mend = "write `-- guard: word, word; why` or `-- guard: none, because …`";
                found.push(Finding::new(&GUARD, self.at(entry.line), what, mend));
            }
            Ok(words) => self.guard_is_there(entry, &words, found),
        }
    }

    fn guard_is_there(&self, entry: &Entry, words: &[String], found: &mut Vec<Finding>) {
        let condition = sql::words(if self.is_lua() { &self.header.body } else { sql::condition(&self.header.body) });
        for word in words.iter().filter(|word| !condition.contains(*word)) {
            let what = format!("the guard `{word}` is not in the condition of the statement");
            found.push(Finding::new(
                &GUARD,
                self.at(entry.line),
                what,
                "add it to the `where`, or take it out of the header",
            ));
        }
    }

    /// One statement per file.
    fn single(&self, found: &mut Vec<Finding>) {
        if !self.is_lua() && self.header.body.trim().trim_end_matches(';').contains(';') {
            let what = "the file holds more than one statement".to_string();
            found.push(Finding::new(&HEADER, self.at(self.header.body_line), what, "give each statement its own file"));
        }
    }

    /// What is said to be otherwise in another store is said of a store that is there.
    fn differs(&self, tree: &Tree, found: &mut Vec<Finding>) {
        let stores = tree.folders(STORES);
        let own = self.source.path.strip_prefix(STORES).and_then(|path| path.split('/').next());
        for entry in &self.header.differs {
            let what = match header::difference(entry) {
                None => "a line begins with `differs` and is not `-- differs from STORE: why`".to_string(),
                Some((store, _)) if Some(store) == own || !stores.contains(&store) => {
                    format!("the header compares with `{store}`, which is no other store here")
                }
                Some(_) => continue,
            };
            let mend = "name the folder of the other store, and what is done otherwise here";
            found.push(Finding::new(&HEADER, self.at(entry.line), what, mend));
        }
    }

    /// Every bind is a name that the translation knows, and nothing else looks like one.
    fn translates(&self, found: &mut Vec<Finding>) {
        let plain = |name: &str| name.strip_prefix(':').is_some_and(|name| name.bytes().all(is_plain));
        let binds = sql::binds(&self.header.body, false);
        for (name, offset) in binds.iter().filter(|(name, _)| !plain(name)) {
            let what = format!("the bind `{name}` is no `:name` of small letters and `_`");
            let mend = "give it such a name; instead of an operator with `?` call its function";
            found.push(Finding::new(&BY_NAME, self.at(self.header.body_line + offset), what, mend));
        }
        for (line, text) in (1..).zip(self.source.text.lines()).skip(self.header.body_line - 1) {
            let told = binds.iter().filter(|(_, offset)| offset + self.header.body_line == line).count();
            let looks = sql::binds(text, false).iter().filter(|(name, _)| name.starts_with(':')).count();
            // Lines of comment are left out before the rest is read.
            if !text.trim_start().starts_with("--") && looks > told {
                let what = "a string, a quoted name or a comment holds what looks like a bind";
                let mend = "write it without a word right behind `:`, or the comment on a line of its own";
                found.push(Finding::new(&BY_NAME, self.at(line), what, mend));
            }
        }
    }
}

const fn is_plain(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_lowercase()
}
