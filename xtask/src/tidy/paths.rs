//! Every `a::b::c` of a file, with `use` trees unfolded and `self`, `super` and the re-exports of `lib.rs` resolved, so
//! that a law about who may name whom cannot be got round by another spelling.

use std::collections::HashMap;

use super::items::closing;
use super::lex::Token;
use super::source::{Source, Tree};

/// A path as it is meant: one that begins in this crate begins with `crate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

/// Names that `lib.rs` re-exports, with the path each stands for. Without them `crate::Host` would be a way around
/// a law about `crate::host`.
#[derive(Debug, Default)]
pub(super) struct Reexports(HashMap<String, Vec<String>>);

impl Reexports {
    /// Reads `pub use` in the library's `lib.rs`.
    pub(super) fn of(tree: &Tree) -> Reexports {
        let mut names = HashMap::new();
        let Some(lib) = tree.file("crates/hapax/src/lib.rs") else { return Reexports(names) };
        for (index, token) in lib.tokens.iter().enumerate() {
            if token.is("use") && index > 0 && lib.tokens[index - 1].is("pub") {
                for used in unfold(&lib.tokens, index + 1, &mut 0) {
                    let mut target = used.segments.clone();
                    if target.first().is_none_or(|first| first != "crate") {
                        target.insert(0, "crate".into());
                    }
                    names.insert(used.known_as, target);
                }
            }
        }
        Reexports(names)
    }

    /// Puts the meant path in the place of a re-exported name.
    fn resolve(&self, segments: Vec<String>) -> Vec<String> {
        match segments.get(1).and_then(|name| self.0.get(name)) {
            Some(target) if segments[0] == "crate" => [target, &segments[2..]].concat(),
            _ => segments,
        }
    }
}

/// One leaf of a `use` tree.
pub(super) struct Used {
    pub(super) segments: Vec<String>,
    pub(super) known_as: String,
    line: usize,
}

/// Every path of a file that has at least two segments.
pub(super) fn paths(source: &Source, reexports: &Reexports) -> Vec<Path> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    let mut module = module_of(&source.path);
    let mut around = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        while around.last().is_some_and(|end| *end <= index) {
            around.pop();
            module.pop();
        }
        if let [word, name, brace, ..] = &tokens[index..]
            && word.is("mod")
            && brace.is("{")
        {
            around.push(closing(tokens, index + 2));
            module.push(name.text.clone());
        }
        let mut next = index + 1;
        let raw: Vec<(Vec<String>, usize)> = if tokens[index].is("use") {
            unfold(tokens, index + 1, &mut next).into_iter().map(|used| (used.segments, used.line)).collect()
        } else {
            plain(tokens, index, &mut next).into_iter().collect()
        };
        for (segments, line) in raw {
            found.push(Path { segments: reexports.resolve(absolute(segments, &module)), line });
        }
        index = next;
    }
    found.retain(|path| path.segments.len() > 1);
    found
}

/// The module that a file is, as the segments behind `crate`.
fn module_of(path: &str) -> Vec<String> {
    let inside = path.split_once("/src/").map_or("", |(_, inside)| inside);
    let mut parts: Vec<String> = inside.trim_end_matches(".rs").split('/').map(String::from).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main", ""].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// Resolves a leading `self` or `super`.
fn absolute(segments: Vec<String>, module: &[String]) -> Vec<String> {
    let first = segments.first().map(String::as_str);
    if !matches!(first, Some("self" | "super")) {
        return segments;
    }
    let ups = segments.iter().take_while(|segment| *segment == "super").count();
    let rest = segments.into_iter().skip_while(|segment| segment == "super" || segment == "self");
    let kept = module.len().saturating_sub(ups);
    ["crate".to_string()].into_iter().chain(module[..kept].iter().cloned()).chain(rest).collect()
}

/// Whether `::` stands at an index.
fn colons(tokens: &[Token], index: usize) -> bool {
    tokens.get(index).is_some_and(|t| t.is(":")) && tokens.get(index + 1).is_some_and(|t| t.is(":"))
}

/// The path that begins with the word at `index`; `next` is moved behind it.
fn plain(tokens: &[Token], index: usize, next: &mut usize) -> Option<(Vec<String>, usize)> {
    if !tokens[index].is_word() {
        return None;
    }
    let mut segments = vec![tokens[index].text.clone()];
    let mut at = index + 1;
    while colons(tokens, at) && tokens.get(at + 2).is_some_and(Token::is_word) {
        segments.push(tokens[at + 2].text.clone());
        at += 3;
    }
    *next = at;
    Some((segments, tokens[index].line))
}

/// The leaves of the `use` tree at `begin`; `next` is moved behind its semicolon.
pub(super) fn unfold(tokens: &[Token], begin: usize, next: &mut usize) -> Vec<Used> {
    let mut found = Vec::new();
    // A stack of prefixes, one for each open brace.
    let mut prefixes: Vec<Vec<String>> = vec![Vec::new()];
    let mut current: Vec<String> = Vec::new();
    let mut alias = None;
    let mut line = 0;
    let mut at = begin;
    while let Some(token) = tokens.get(at) {
        at += 1;
        if token.is_word() && tokens[at - 2].is("as") {
            alias = Some(token.text.clone());
        } else if (token.is_word() && token.text != "as") || token.is("*") {
            line = token.line;
            current.push(token.text.clone());
        } else if token.is("{") {
            let prefix = [prefixes.last().cloned().unwrap_or_default(), std::mem::take(&mut current)].concat();
            prefixes.push(prefix);
        } else if token.is(",") || token.is("}") || token.is(";") {
            let prefix = prefixes.last().cloned().unwrap_or_default();
            if !current.is_empty() {
                found.push(leaf([prefix, std::mem::take(&mut current)].concat(), alias.take(), line));
            }
            if token.is("}") {
                prefixes.pop();
            } else if token.is(";") {
                break;
            }
        } else if token.is("<") {
            // `use<'a>` in a type is no import.
            break;
        }
    }
    *next = at;
    found
}

/// One leaf, where `a::{self}` means `a`.
fn leaf(mut segments: Vec<String>, alias: Option<String>, line: usize) -> Used {
    if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    let known_as = alias.or_else(|| segments.last().cloned()).unwrap_or_default();
    Used { segments, known_as, line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let lib = ("crates/hapax/src/lib.rs", "pub use host::Host; pub use crate::store::{Store as Seam};");
        let tree = Tree::of(&[lib, (path, text)]);
        let source = tree.file(path).expect("the file just given");
        paths(source, &Reexports::of(&tree)).into_iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn use_trees_are_unfolded() {
        let text = "use crate::{id::{self, JobId as J}, store};\nlet x: a::b<c::d> = $crate::e!();";
        assert_eq!(
            found("crates/hapax/src/model/job.rs", text),
            ["crate::id", "crate::id::JobId", "crate::store", "a::b", "c::d", "crate::e"]
        );
    }

    #[test]
    fn super_and_self_are_resolved() {
        let text = "use super::super::host::x; mod tests { use super::*; use super::super::store::y; } use self::z;";
        assert_eq!(
            found("crates/hapax/src/model/job.rs", text),
            ["crate::host::x", "crate::model::job::*", "crate::model::store::y", "crate::model::job::z"]
        );
        assert_eq!(found("crates/hapax/src/model/mod.rs", "use super::store::S;"), ["crate::store::S"]);
    }

    #[test]
    fn reexports_are_seen_through() {
        let text = "fn f(h: crate::Host, s: &dyn crate::Seam) -> crate::Host::X {}";
        assert_eq!(
            found("crates/hapax/src/model/job.rs", text),
            ["crate::host::Host", "crate::store::Store", "crate::host::Host::X"]
        );
    }
}
