//! One step: a transaction, what time it is in it, and the texts of its statements.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Result, Row};

use crate::clock::{Clock, Micros, Now};

/// The schema that is used unless another is named.
pub(super) const DEFAULT_SCHEMA: &str = "hapax";

/// Whether a session may be asked to remember a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sessions {
    /// Ours from their begin to their end.
    Own,
    /// A pooler gives each transaction another one: what one was asked to remember the next does not know, or knows
    /// under the name that it was about to use.
    Shared,
    /// The user's: theirs to know, and shown by whether they let one remember anything.
    Theirs,
}

/// What every step of a store shares.
#[derive(Debug)]
pub(super) struct Home {
    name: String,
    /// As it stands in statements, quoted if it must be.
    schema: String,
    /// Of a test; else the server's own clock counts.
    clock: Option<Clock>,
    sessions: Sessions,
    texts: RwLock<HashMap<&'static str, Arc<str>>>,
}

impl Home {
    pub(super) fn new(schema: &str, sessions: Sessions, clock: Option<Clock>) -> Self {
        Self { name: schema.to_owned(), schema: quoted(schema), clock, sessions, texts: RwLock::default() }
    }

    /// The name of the schema.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// As it stands in statements.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// Where hints of new work are told: as `hapax.hint` of the schema does.
    pub(super) fn channel(&self) -> String {
        format!("{}.hints", self.schema)
    }

    /// A statement as the server understands it: with numbers for names, and in our schema.
    pub(super) fn text(&self, statement: &'static str, names: &[&str]) -> Arc<str> {
        let known = self.texts.read().unwrap_or_else(PoisonError::into_inner).get(statement).cloned();
        if let Some(text) = known {
            return text;
        }
        let (text, found) = translated(statement, &self.schema);
        debug_assert_eq!(found, names, "every place-holder is bound, in the order in which they first occur");
        let text: Arc<str> = text.into();
        self.texts.write().unwrap_or_else(PoisonError::into_inner).insert(statement, Arc::clone(&text));
        text
    }

    /// A text without place-holders, in our schema.
    pub(super) fn in_schema(&self, text: &str) -> String {
        text.replace("hapax.", &format!("{}.", self.schema))
    }
}

/// A name as an identifier.
fn quoted(name: &str) -> String {
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The text of a statement without its head of comments, with `$1` for the first `:name`, and so on; and the names.
fn translated(statement: &str, schema: &str) -> (String, Vec<String>) {
    let mut names: Vec<String> = Vec::new();
    let mut text = String::with_capacity(statement.len());
    for line in statement.lines().filter(|line| !line.trim_start().starts_with("--")) {
        let mut rest = line;
        while let Some(at) = rest.find(':') {
            let (before, after) = rest.split_at(at);
            text.push_str(before);
            let name_len = after[1..].bytes().take_while(|b| b.is_ascii_lowercase() || *b == b'_').count();
            if after.starts_with("::") || name_len == 0 {
                let len = if after.starts_with("::") { 2 } else { 1 };
                text.push_str(&after[..len]);
                rest = &after[len..];
                continue;
            }
            let name = &after[1..=name_len];
            let place = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            });
            text.push('$');
            text.push_str(&(place + 1).to_string());
            rest = &after[1 + name_len..];
        }
        text.push_str(rest);
        text.push('\n');
    }
    (text.replace("hapax.", &format!("{schema}.")), names)
}

/// A transaction under way.
#[derive(Debug)]
pub(super) struct Step<'c> {
    pub(super) connection: &'c mut PgConnection,
    home: &'c Home,
    now: Now,
    /// Whether statements stay prepared in the session.
    prepares: bool,
}

impl<'c> Step<'c> {
    /// One in a transaction of our own, which was begun at `server_now` by the server's clock.
    pub(super) fn begun(connection: &'c mut PgConnection, home: &'c Home, server_now: Micros) -> Self {
        let now = home.clock.as_ref().map_or(Now { wall: server_now, lease: server_now }, Clock::now);
        let prepares = match home.sessions {
            Sessions::Own => true,
            Sessions::Shared => false,
            Sessions::Theirs => connection.cached_statements_size() > 0,
        };
        Self { connection, home, now, prepares }
    }

    /// One in a transaction of the user's.
    pub(super) async fn inside(connection: &'c mut PgConnection, home: &'c Home) -> Result<Self> {
        let mut step = Self::begun(connection, home, Micros::default());
        step.look_at_the_clock().await?;
        Ok(step)
    }

    /// What time it was when the step began, or last looked.
    pub(super) const fn now(&self) -> Now {
        self.now
    }

    /// Reads the clock again: after locks were waited for, so that waiting never counts as time held.
    pub(super) async fn look_at_the_clock(&mut self) -> Result<Now> {
        self.now = if let Some(clock) = &self.home.clock {
            clock.now()
        } else {
            let query = sqlx::query("select clock_timestamp()").persistent(self.prepares);
            let row = query.fetch_one(&mut *self.connection).await?;
            let at: Micros = row.try_get(0)?;
            Now { wall: at, lease: at }
        };
        Ok(self.now)
    }

    pub(super) fn text(&self, statement: &'static str, names: &[&str]) -> Arc<str> {
        self.home.text(statement, names)
    }

    /// Whether a statement may stay prepared in the session.
    pub(super) const fn prepares(&self) -> bool {
        self.prepares
    }

    /// As it stands in statements.
    pub(super) fn schema(&self) -> &str {
        self.home.schema()
    }

    /// A text without place-holders, in our schema.
    pub(super) fn in_schema(&self, text: &str) -> String {
        self.home.in_schema(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers_and_casts_stay() {
        let (text, names) = translated(
            "-- find: one\n-- binds: :ids, :at\nselect x::text from hapax.jobs -- why\n \
             where id = any(:ids::uuid[]) and a < :at and b > :at",
            "\"My app\"",
        );
        assert_eq!(names, ["ids", "at"]);
        let wanted = "select x::text from \"My app\".jobs -- why\n where id = any($1::uuid[]) and a < $2 and b > $2\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn schemas_are_quoted_when_they_must_be() {
        assert_eq!(quoted("hapax_2"), "hapax_2");
        assert_eq!(quoted("Hapax"), "\"Hapax\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted("2nd"), "\"2nd\"");
    }
}
