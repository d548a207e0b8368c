//! One word per thing: synonyms that must not come in.

use super::lex::Kind;
use super::source::{Tree, is_rust};
use super::{Exempt, Finding, Law, exempt};

/// A synonym and the word this project uses.
struct Synonym {
    /// Its parts in small letters: `dead letter` is also `dead_letter`, `dead-letter` and `DeadLetter`.
    banned: &'static str,
    word: &'static str,
    /// Whether prose and messages must not say it either. Not so for words that mean something else in plain English.
    in_prose: bool,
}

static ONE_WORD: Law = Law {
    name: "one word per thing",
    why: "two words for one thing make a reader look for the difference; ARCHITECTURE.md opens with the glossary",
};

const SYNONYMS: &[Synonym] = &[
    Synonym { banned: "dequeue", word: "claim", in_prose: true },
    Synonym { banned: "dead letter", word: "park", in_prose: true },
    Synonym { banned: "nack", word: "fail", in_prose: true },
    Synonym { banned: "requeue", word: "release", in_prose: true },
    Synonym { banned: "job ctx", word: "Run", in_prose: true },
    Synonym { banned: "on missed", word: "missed", in_prose: false },
    Synonym { banned: "fencing token", word: "fence", in_prose: false },
    Synonym { banned: "fence token", word: "fence", in_prose: false },
    Synonym { banned: "lock token", word: "fence", in_prose: false },
];

/// Where another system's own words must be written.
const EXCEPT: &[Exempt] = &[
    Exempt { path: "crates/hapax/src/broker/rabbitmq.rs", reason: "AMQP's methods are called so" },
    Exempt { path: "crates/hapax/src/broker/nats.rs", reason: "JetStream's answers are called so" },
];

pub(super) fn laws() -> Vec<&'static Law> {
    vec![&ONE_WORD]
}

/// Every synonym in the library's code, docs, messages and statements.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.below("crates/hapax/src/").filter(|source| !exempt(EXCEPT, &source.path)) {
        let mut look = |text: &str, line: usize, prose: bool| {
            for synonym in SYNONYMS.iter().filter(|synonym| (synonym.in_prose || !prose) && says(text, synonym.banned))
            {
                let what = format!("\"{}\" is another word for \"{}\"", synonym.banned, synonym.word);
                let mend = format!("write \"{}\"", synonym.word);
                found.push(Finding::new(&ONE_WORD, (&source.path, line), what, mend));
            }
        };
        for token in source.tokens.iter().filter(|token| matches!(token.kind, Kind::Word | Kind::Text)) {
            for (offset, text) in token.text.lines().enumerate() {
                look(text, token.line + offset, token.kind == Kind::Text);
            }
        }
        for comment in &source.comments {
            look(&comment.text, comment.line, true);
        }
        if !is_rust(&source.path) {
            for (text, line) in source.text.lines().zip(1..) {
                look(text, line, true);
            }
        }
    }
    found
}

/// Whether a text says a synonym, in any spelling and with an ending such as `-ed`.
fn says(text: &str, banned: &str) -> bool {
    let wanted: Vec<&str> = banned.split(' ').collect();
    let parts = parts(text);
    parts.windows(wanted.len()).any(|window| {
        let (last, head) = (window.len() - 1, &window[..window.len() - 1]);
        head.iter().zip(&wanted).all(|(have, want)| have == want) && inflected(&window[last], wanted[last])
    })
}

/// The parts of a text in small letters: `DeadLetter`, `dead_letter` and `dead-letter` have the same two.
fn parts(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut before = ' ';
    for c in text.chars() {
        if before.is_lowercase() && c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(if c.is_alphanumeric() || matches!(c, '.' | ',' | ';' | ':') { c } else { ' ' });
        before = c;
    }
    spaced.split_whitespace().map(str::to_lowercase).collect()
}

/// Whether a part is the word or one of its forms.
fn inflected(part: &str, word: &str) -> bool {
    let part = part.trim_end_matches(['.', ',', ';', ':']);
    let stem = word.trim_end_matches('e');
    part == word || part.strip_prefix(stem).is_some_and(|end| ["s", "es", "d", "ed", "ing"].contains(&end))
}

#[cfg(test)]
mod tests {
    use super::says;

    #[test]
    fn every_spelling_is_found() {
        for text in ["DeadLetterPolicy", "dead_letters", "a dead-lettered job", "DEAD_LETTER"] {
            assert!(says(text, "dead letter"), "{text}");
        }
        for text in ["Dequeuing is", "was dequeued.", "dequeue_many"] {
            assert!(says(text, "dequeue"), "{text}");
        }
        assert!(says("struct JobCtx<'a>", "job ctx"));
    }

    #[test]
    fn neighbours_are_left_alone() {
        for text in ["snack", "knack", "a dead. Letter", "unacknowledged"] {
            assert!(!says(text, "nack") && !says(text, "dead letter"), "{text}");
        }
        assert!(!says("CancellationToken", "lock token"));
    }
}
