//! The conformance suite is only as good as its list: every case is in it, and every store runs it or says why not.

use std::collections::BTreeSet;

use super::items::closing;
use super::lex::{Kind, Token};
use super::source::{Source, Tree, is_rust};
use super::{Finding, Law};

static LISTED: Law = Law { name: "case listed", why: "a case that is in no list is compiled and never run" };
static RUN: Law = Law {
    name: "suite run by every store",
    why: "a promise holds on the stores that prove it; one that cannot keep it says so with the reason",
};

const SUITE: &str = "crates/hapax/src/conformance/";
const LIST: &str = "crates/hapax/src/conformance/mod.rs";
const STORES: &str = "crates/hapax/src/store/";
const TESTS: &str = "crates/hapax/tests/it/";

pub(super) fn laws() -> Vec<&'static Law> {
    vec![&LISTED, &RUN]
}

/// Every case that is not listed, and every store that does not run the suite.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    if tree.below(SUITE).next().is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut cases = BTreeSet::new();
    let listed = tree.file(LIST).map(listed).unwrap_or_default();
    for source in tree.below(SUITE).filter(|source| is_rust(&source.path)) {
        for case in
            source.functions().iter().filter(|function| function.public && takes_harness(&function.first_parameter))
        {
            let name = format!("{}::{}", room(source), case.name);
            if !listed.contains(&name) {
                let mend = format!("add `{name}` to the list in {LIST}");
                found.push(Finding::new(
                    &LISTED,
                    (&source.path, case.line),
                    format!("no list has the case `{name}`"),
                    mend,
                ));
            }
            cases.insert(case.name.clone());
        }
    }
    for store in tree.folders(STORES) {
        found.extend(runs(tree, store, &cases));
    }
    found
}

/// A case is a public function whose first parameter is a harness: `h: &dyn Harness`.
fn takes_harness(first_parameter: &[String]) -> bool {
    first_parameter.iter().any(|word| word == "Harness")
}

/// What a case's file is called in the list.
fn room(source: &Source) -> &str {
    match source.stem() {
        "mod" => source.folder().rsplit('/').next().unwrap_or_default(),
        stem => stem,
    }
}

/// Every `room::name` in the list, whatever stands before it.
fn listed(list: &Source) -> BTreeSet<String> {
    let pairs = list.tokens.windows(4).filter(|four| four[1].is(":") && four[2].is(":") && four[0].is_word());
    pairs.map(|four| format!("{}::{}", four[0].text, four[3].text)).collect()
}

/// What is wrong with the way a store runs the suite.
fn runs(tree: &Tree, store: &str, cases: &BTreeSet<String>) -> Vec<Finding> {
    // One file, or one of a folder that holds what only this store has.
    let in_folder = format!("{TESTS}{store}/suite.rs");
    let path = if tree.file(&in_folder).is_some() { in_folder } else { format!("{TESTS}{store}.rs") };
    let mend = "call `conformance!` there, with `exempt: [(case, \"reason\")]` for what it cannot keep";
    let Some(test) = tree.file(&path) else {
        let what = format!("the store has no test file {path}");
        return vec![Finding::new(&RUN, (&format!("{STORES}{store}/mod.rs"), 1), what, mend)];
    };
    let Some(call) = test.tokens.windows(2).position(|pair| pair[0].is("conformance") && pair[1].is("!")) else {
        return vec![Finding::new(&RUN, (&path, 1), "the store does not run the conformance suite", mend)];
    };
    exemptions(&test.tokens[call..])
        .into_iter()
        .filter_map(|exemption| {
            let place = (path.as_str(), exemption.line);
            if !cases.contains(&exemption.case) {
                let what = format!("there is no case `{}` to be exempt from", exemption.case);
                Some(Finding::new(&RUN, place, what, "take it out"))
            } else if exemption.reason.trim().is_empty() {
                let what = format!("the exemption from `{}` has no reason", exemption.case);
                Some(Finding::new(&RUN, place, what, "say what the store cannot keep and why"))
            } else {
                None
            }
        })
        .collect()
}

/// One `(case, "reason")`.
struct Exemption {
    case: String,
    reason: String,
    line: usize,
}

/// The exemptions in a call of the macro. A case may be written with its room before it.
fn exemptions(call: &[Token]) -> Vec<Exemption> {
    let Some(open) = call.iter().position(|token| ["(", "[", "{"].iter().any(|open| token.is(open))) else {
        return Vec::new();
    };
    let inside = &call[open + 1..closing(call, open)];
    let Some(begin) = inside.windows(3).position(|w| w[0].is("exempt") && w[1].is(":") && w[2].is("[")) else {
        return Vec::new();
    };
    let list = &inside[begin + 3..closing(inside, begin + 2)];
    let mut found = Vec::new();
    for (index, token) in list.iter().enumerate().filter(|(_, token)| token.is("(")) {
        let pair = &list[index + 1..closing(list, index)];
        let parts: Vec<&[Token]> = pair.split(|token| token.is(",")).collect();
        let case = parts.first().and_then(|part| part.last()).map(|token| token.text.clone()).unwrap_or_default();
        let text = |part: &&[Token]| part.iter().find(|token| token.kind == Kind::Text).map(|token| token.text.clone());
        let reason = parts.get(1).and_then(text).unwrap_or_default();
        found.push(Exemption { case, reason, line: token.line });
    }
    found
}
