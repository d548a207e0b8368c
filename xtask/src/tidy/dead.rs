//! Files that nothing imports, and rooms that do not say what they are for.

use std::collections::BTreeSet;

use super::items::declared;
use super::source::{Source, Tree, fits, is_rust};
use super::{Finding, Law};

static DEAD: Law =
    Law { name: "dead file", why: "a file that nothing imports is not compiled, not tested and still believed" };
static ROOM: Law =
    Law { name: "room doc", why: "a room is understood by what it is for, and kept small by what it does not know" };

/// Where Rust files must be reachable from a root.
const PLACES: [&str; 3] = ["crates/*/src/", "crates/*/tests/it/", "xtask/src/"];

/// Inside a place, the files that cargo starts from.
const ROOTS: [&str; 4] = ["lib.rs", "main.rs", "bin/*.rs", "bin/*/main.rs"];

/// Folders whose files are read by a test, as input for the compiler.
const INPUTS: [&str; 2] = ["/ui/", "/compile_fail/"];

/// Rooms whose `mod.rs` opens with a doc.
const ROOMS: [&str; 2] = ["crates/hapax/src/", "crates/hapax-server/src/"];

/// How long that doc is at least.
const DOC_LINES: usize = 5;

pub(super) fn laws() -> Vec<&'static Law> {
    vec![&DEAD, &ROOM]
}

/// Every dead file and every room without a doc.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let reached = reached(tree);
    let mut found = Vec::new();
    for source in tree.rust() {
        let path = source.path.as_str();
        let input = INPUTS.iter().any(|folder| path.contains(folder));
        if inside(path).is_some() && !input && !reached.contains(path) {
            let mend = "declare it with `mod`, or delete it";
            found.push(Finding::new(&DEAD, (path, 1), "no module declares this file", mend));
        }
        if path.ends_with("/mod.rs") && ROOMS.iter().any(|room| path.starts_with(room)) {
            found.extend(room_doc(source));
        }
    }
    found
}

/// The part of a path inside the place that it is in.
fn inside(path: &str) -> Option<&str> {
    let place = PLACES.iter().find(|place| fits(place, path))?;
    let parts = place.matches('/').count();
    path.splitn(parts + 1, '/').last()
}

/// Every file that can be reached through `mod` from a root.
fn reached(tree: &Tree) -> BTreeSet<String> {
    let is_root = |path: &str| inside(path).is_some_and(|inside| ROOTS.iter().any(|root| root_fits(root, inside)));
    let mut open: Vec<&Source> = tree.rust().filter(|source| is_root(&source.path)).collect();
    let mut reached: BTreeSet<String> = open.iter().map(|source| source.path.clone()).collect();
    while let Some(source) = open.pop() {
        for candidate in candidates(source, is_root(&source.path)) {
            if let Some(file) = tree.file(&candidate).filter(|file| is_rust(&file.path))
                && reached.insert(candidate)
            {
                open.push(file);
            }
        }
    }
    reached
}

/// Whether a path inside a place is the given root, where `*.rs` is any file.
fn root_fits(root: &str, inside: &str) -> bool {
    match root.strip_suffix("/*.rs") {
        Some(folder) => inside.strip_prefix(folder).is_some_and(|rest| rest.matches('/').count() == 1),
        None => fits(root, inside),
    }
}

/// The files that the `mod` declarations of a file may mean.
fn candidates(source: &Source, is_root: bool) -> Vec<String> {
    let owns_folder = is_root || source.stem() == "mod";
    let own = if owns_folder { source.folder().to_string() } else { format!("{}/{}", source.folder(), source.stem()) };
    let mut files = Vec::new();
    for declared in declared(&source.tokens) {
        let base = format!("{own}/{}", declared.path.join("/"));
        match declared.file {
            Some(file) => files.push(join(source.folder(), &file)),
            None => files.extend([format!("{base}.rs"), format!("{base}/mod.rs")]),
        }
    }
    files
}

/// A path relative to a folder, with `..` resolved.
pub(super) fn join(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in relative.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

/// What is missing in the doc of a room.
fn room_doc(source: &Source) -> Option<Finding> {
    let lines: Vec<&str> = source.text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let doc = lines.join(" ").to_lowercase();
    let doc: Vec<&str> = doc.split_whitespace().collect();
    let doc = doc.join(" ");
    let place = (source.path.as_str(), 1);
    if lines.len() < DOC_LINES {
        let what = format!("the room's doc has {} lines, less than {DOC_LINES}", lines.len());
        return Some(Finding::new(&ROOM, place, what, "open with `//!`: what it is for and what it does not know"));
    }
    let says = ["does not know", "knows nothing"].iter().any(|words| doc.contains(words));
    (!says).then(|| {
        let mend = "add a sentence with \"does not know\" or \"knows nothing\"";
        Finding::new(&ROOM, place, "the room's doc does not say what the room does not know", mend)
    })
}
