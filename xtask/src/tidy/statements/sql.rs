//! What can be read off a statement's text without a parser.

use std::collections::BTreeSet;

/// The text without comments and without its strings and quoted names; lines stay where they are.
pub(super) fn bare(text: &str) -> String {
    let mut bare = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if c == '\'' || c == '"' {
            rest[1..].find(c).map_or(rest.len(), |end| end + 2)
        } else {
            bare.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        bare.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        rest = &rest[skipped..];
    }
    bare
}

/// Every bind, as it is written, with its line counted from zero: `:name`, `@name`, `$1`, `$name`, `?1`, `?`, and in
/// Lua `KEYS[1]`, `ARGV[1]`.
pub(super) fn binds(text: &str, lua: bool) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let names = if lua { lua_binds(text) } else { sql_binds(text) };
        found.extend(names.into_iter().map(|name| (name, line)));
    }
    found
}

fn sql_binds(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        let name: String = line[at + c.len_utf8()..].chars().take_while(|c| *c == '_' || c.is_alphanumeric()).collect();
        // `a::b` is a cast and `a$1` a name.
        let starts = before != ':' && !(c == '$' && (before == '_' || before.is_alphanumeric()));
        let bind = match c {
            ':' | '@' => starts && name.starts_with(|c: char| c == '_' || c.is_alphabetic()),
            '$' => starts && !name.is_empty(),
            '?' => true,
            _ => false,
        };
        if bind {
            found.push(format!("{c}{name}"));
        }
        before = c;
    }
    found
}

fn lua_binds(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for table in ["KEYS[", "ARGV["] {
        for (at, _) in line.match_indices(table) {
            let index = line[at + table.len()..].split(']').next().unwrap_or_default();
            found.push(format!("{table}{}]", index.trim()));
        }
    }
    found
}

/// The words of a text, in small letters.
pub(super) fn words(text: &str) -> BTreeSet<String> {
    ordered(text).collect()
}

fn ordered(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Whether a statement changes rows that may be somebody else's: it updates, deletes, or inserts what may be there.
pub(super) fn writes(body: &str) -> bool {
    let words: Vec<String> = ordered(body).collect();
    let inserts = words.iter().any(|word| word == "insert");
    let changes = |index: usize, word: &str| {
        let before = index.checked_sub(1).map_or("", |before| words[before].as_str());
        match word {
            // Not `for update`, `do update`, `on update`.
            "update" => !["for", "do", "on", "key"].contains(&before),
            "delete" => before != "on",
            "replace" => index == 0 || before == "or",
            "conflict" | "duplicate" => inserts && before == "on",
            "ignore" => inserts && (before == "insert" || before == "or"),
            _ => false,
        }
    };
    words.iter().enumerate().any(|(index, word)| changes(index, word))
}

/// The part of a statement that can guard it: what stands behind the first `where` or `on`. An insert that ignores what
/// is there is guarded by its columns.
pub(super) fn condition(body: &str) -> &str {
    let lower = body.to_ascii_lowercase();
    let whole = |at: usize, word: &str| {
        let edge = |c: Option<char>| c.is_none_or(|c| c != '_' && !c.is_alphanumeric());
        edge(lower[..at].chars().next_back()) && edge(lower[at + word.len()..].chars().next())
    };
    let first = |word: &str| lower.match_indices(word).map(|(at, _)| at).find(|at| whole(*at, word));
    match (first("where"), first("on")) {
        (Some(a), Some(b)) => &body[a.min(b)..],
        (Some(at), None) | (None, Some(at)) => &body[at..],
        (None, None) if first("insert").is_some() => body,
        (None, None) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_are_told_from_casts_strings_and_comments() {
        let text = bare("select $1::text, :a, ':b', '''?' /* ?1 */, ?2 -- @c\n, @d, x$3, :a");
        let found = binds(&text, false);
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["$1", ":a", "?2", "@d", ":a"]);
        assert_eq!(found[3].1, 1);
        assert_eq!(
            binds("redis.call('get', KEYS[1], ARGV[ 2 ])", true),
            [("KEYS[1]".into(), 0), ("ARGV[2]".into(), 0)]
        );
    }

    #[test]
    fn a_bind_that_is_cast_is_one_bind() {
        let names = |text: &str| binds(&bare(text), false).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("select :a::bigint, :b::text[], (:c)::jsonb, :d :: uuid"), [":a", ":b", ":c", ":d"]);
        assert_eq!(names("select 'x:y'::text, ''':z'::text, \":q\".a::int4, now()::timestamptz(3)"), [""; 0]);
        assert_eq!(names("select f(at => :at, n := 1), x[1:2], E':e', -- :c\n/* :d\n :d */ :b"), [":at", ":b"]);
        assert_eq!(names("select a @> :b, c <@ :d, e #>> :f::text[]"), [":b", ":d", ":f"]);
        assert_eq!(names("where :owner::uuid is null or owner = :owner"), [":owner", ":owner"]);
    }

    #[test]
    fn reads_and_plain_inserts_do_not_write_over_anything() {
        assert!(!writes("select 1 from jobs for update skip locked"));
        assert!(!writes("insert into jobs (id) values (:id)"));
        assert!(writes("insert into jobs (id) values (:id) on conflict (id) do nothing"));
        assert!(writes("insert or ignore into jobs (id) values (:id)"));
        assert!(writes("with due as (select 1) update jobs set x = 1"));
        assert!(writes("delete from jobs"));
    }

    #[test]
    fn what_is_set_is_no_guard() {
        assert!(!words(condition("update jobs set fence = :fence where id = :id")).contains("fence "));
        assert!(words(condition("update jobs set x = 1 where id = :id and fence = :fence")).contains("fence"));
        assert!(!words(condition("update jobs set condition = :x")).contains("condition"));
    }
}
