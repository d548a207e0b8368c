//! The head of a statement file, and what is left below it.

use super::sql;

/// One entry of a header, with its continuation lines.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) text: String,
}

/// A statement file, taken apart.
#[derive(Debug)]
pub(super) struct Header {
    /// The name and the sentence of the first line.
    pub(super) title: Option<(String, String)>,
    pub(super) binds: Option<Entry>,
    pub(super) guard: Option<Entry>,
    /// Every entry that begins with `differs`, without that word.
    pub(super) differs: Vec<Entry>,
    /// The text below the header, without comments and the content of strings.
    pub(super) body: String,
    /// The line on which the body begins.
    pub(super) body_line: usize,
}

impl Header {
    /// Takes a file apart: the header is every comment line before the first other line.
    pub(super) fn of(text: &str) -> Header {
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
        let body: Vec<&str> = text.lines().skip(head.len()).collect();
        let title = head.first().and_then(|line| line.trim_start_matches('-').split_once(':'));
        Header {
            title: title.map(|(name, does)| (name.trim().to_string(), does.trim().to_string())),
            binds: entry(&head, "binds:"),
            guard: entry(&head, "guard:"),
            differs: (0..head.len()).filter_map(|index| entry_at(&head, index, "differs")).collect(),
            body: sql::bare(&body.join("\n")),
            body_line: head.len() + 1,
        }
    }
}

/// The first entry that begins with a key.
fn entry(head: &[&str], key: &str) -> Option<Entry> {
    (0..head.len()).find_map(|index| entry_at(head, index, key))
}

/// The entry at an index, if it begins with the key; with the lines below it that are indented by two blanks or more.
fn entry_at(head: &[&str], index: usize, key: &str) -> Option<Entry> {
    let first = head[index].strip_prefix("-- ")?.strip_prefix(key)?;
    let more = head[index + 1..].iter().map_while(|line| line.strip_prefix("--   ").or(line.strip_prefix("--  ")));
    let text = std::iter::once(first).chain(more).collect::<Vec<_>>().join(" ");
    Some(Entry { line: index + 1, text: text.trim().to_string() })
}

/// The store and the reason in `from STORE: why`, which is what follows `differs`.
pub(super) fn difference(entry: &Entry) -> Option<(&str, &str)> {
    let (store, why) = entry.text.strip_prefix("from ")?.split_once(':')?;
    let (store, why) = (store.trim(), why.trim());
    (!why.is_empty() && !store.is_empty() && !store.contains(' ')).then_some((store, why))
}

/// The words of a guard entry; none if it says `none, because …`.
pub(super) fn guard(entry: &Entry) -> Result<Vec<String>, String> {
    if let Some(rest) = entry.text.strip_prefix("none") {
        let reason = rest.trim_start_matches([',', ' ']).strip_prefix("because ").map(str::trim);
        return match reason {
            Some(reason) if !reason.is_empty() => Ok(Vec::new()),
            _ => Err("`-- guard: none` gives no reason".into()),
        };
    }
    let list = entry.text.split_once(';').map_or(entry.text.as_str(), |(list, _)| list);
    let word = |item: &str| {
        let word = item.trim().trim_matches('`').to_lowercase();
        let plain = !word.is_empty() && word.chars().all(|c| c == '_' || c.is_alphanumeric());
        if plain { Ok(word) } else { Err(format!("`{}` is not one word", item.trim())) }
    };
    list.split(',').map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_ends_where_the_statement_begins() {
        let header = Header::of(
            "-- claim: takes due jobs\n-- binds: :a,\n--   :b\n-- guard: `state`, fence; only live ones\n\
             select :a -- :c\n, :b",
        );
        assert_eq!(header.title, Some(("claim".into(), "takes due jobs".into())));
        assert_eq!(header.binds.expect("binds").text, ":a, :b");
        assert_eq!(guard(&header.guard.expect("guard")), Ok(vec!["state".into(), "fence".into()]));
        assert_eq!((header.body.trim_end(), header.body_line), ("select :a \n, :b", 5));
    }

    #[test]
    fn a_difference_names_a_store_and_a_reason() {
        let header = Header::of(
            "-- claim: takes\n-- binds: none\n-- differs from sqlite: locks what it picks,\n--   row by row\n\
             -- differs from mysql: returns it\nselect 1",
        );
        let found: Vec<_> = header.differs.iter().map(difference).collect();
        assert_eq!(found, [Some(("sqlite", "locks what it picks, row by row")), Some(("mysql", "returns it"))]);
        assert_eq!(header.differs[1].line, 5);
        for text in ["from sqlite", "from sqlite: ", "a lot: it locks", "from the others: it locks"] {
            assert_eq!(difference(&Entry { line: 1, text: text.into() }), None, "{text}");
        }
    }

    #[test]
    fn a_guard_of_none_needs_a_reason() {
        let guard = |text: &str| guard(&Entry { line: 1, text: text.into() });
        assert_eq!(guard("none, because the row is new"), Ok(vec![]));
        assert!(guard("none").is_err());
        assert!(guard("the state of the row").is_err());
    }
}
