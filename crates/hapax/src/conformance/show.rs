//! Commands and answers on one line each, as a person reads them: short ids, and nothing that says nothing.

use std::fmt::Debug;

/// Longest line.
const CHARS_MAX: usize = 600;
/// What every value of the small world has in common.
const NOISE: [&str; 5] =
    ["payload: Payload(2 bytes)", "payload_version: 1", "base_ms: 500", "cap_ms: 2000", "version: \"0.1.0\""];
/// Ends of fields that are at rest.
const AT_REST: [&str; 5] = [": None", ": false", ": 0", ": []", ": Now"];

/// `value`, without fields at rest, and with the short names of ids that [`short`] makes.
pub(super) fn brief(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let fields = text.split(", ").filter(|field| {
        let inner = field.rsplit("{ ").next().unwrap_or(field);
        !NOISE.contains(&inner) && !AT_REST.iter().any(|rest| field.ends_with(rest))
    });
    let mut text = short(&fields.collect::<Vec<_>>().join(", "));
    if text.len() > CHARS_MAX {
        text.truncate(text.floor_char_boundary(CHARS_MAX));
        text.push('…');
    }
    text
}

/// Shortens every UUID to its first digits, which tell the ids of one caller apart, and its last ones, which tell
/// callers apart.
fn short(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, here) = rest.split_at(at);
        out.push_str(before);
        let len = here.find(|c: char| !c.is_ascii_hexdigit() && c != '-').unwrap_or(here.len());
        let (word, after) = here.split_at(len);
        if uuid::Uuid::parse_str(word).is_ok() {
            out.push_str(&word[..4]);
            out.push_str(word[34..].trim_start_matches('0'));
        } else {
            out.push_str(word);
        }
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    struct Value {
        id: uuid::Uuid,
        fence: Option<i64>,
        limit: u32,
        state: bool,
    }

    #[test]
    fn lines_are_short() {
        let id = uuid::Uuid::from_u128(0xABCD << 112);
        assert_eq!(short(&format!("job {id} of bee {id}")), "job abcd of bee abcd");
        assert_eq!(
            brief(&Value { id, fence: None, limit: 3, state: true }),
            "Value { id: abcd, limit: 3, state: true }"
        );
    }
}
