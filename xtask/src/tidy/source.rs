//! The tree as the laws see it: every text file they may speak about, read once.

use std::fs;
use std::io;
use std::path::Path;

use super::items::{self, Function};
use super::lex::{Comment, Token, lex};

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the root of the tree, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// Empty unless the file is Rust.
    pub(super) tokens: Vec<Token>,
    /// Empty unless the file is Rust.
    pub(super) comments: Vec<Comment>,
}

impl Source {
    fn new(path: String, text: String) -> Source {
        let (tokens, comments) = if is_rust(&path) { lex(&text) } else { (Vec::new(), Vec::new()) };
        Source { path, text, tokens, comments }
    }

    /// The file's name without folder and ending.
    pub(super) fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.split('.').next().unwrap_or(name)
    }

    /// The folder it is in, without a slash at the end.
    pub(super) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Every function in it.
    pub(super) fn functions(&self) -> Vec<Function> {
        items::functions(&self.tokens)
    }
}

/// Every file that a law may speak about.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Sorted by path.
    pub(super) files: Vec<Source>,
}

impl Tree {
    /// Reads a tree.
    pub(super) fn read(root: &Path) -> io::Result<Tree> {
        let mut files = Vec::new();
        walk(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree { files })
    }

    /// A tree made of texts.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        Tree { files: files.iter().map(|(path, text)| Source::new((*path).into(), (*text).into())).collect() }
    }

    /// The file at a path.
    pub(super) fn file(&self, path: &str) -> Option<&Source> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Every Rust file.
    pub(super) fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| is_rust(&file.path))
    }

    /// Every file below a folder, which ends with a slash.
    pub(super) fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a Source> {
        self.files.iter().filter(move |file| file.path.starts_with(folder))
    }

    /// The names of the folders directly below a folder, which ends with a slash.
    pub(super) fn folders(&self, folder: &str) -> Vec<&str> {
        let inside = self.files.iter().filter_map(|file| file.path.strip_prefix(folder));
        let mut names: Vec<&str> = inside.filter_map(|rest| rest.split_once('/').map(|(name, _)| name)).collect();
        names.dedup();
        names
    }
}

/// Whether a path is a Rust file.
pub(super) fn is_rust(path: &str) -> bool {
    has_ending(path, &["rs"])
}

/// Whether a path ends with one of the given endings.
pub(super) fn has_ending(path: &str, endings: &[&str]) -> bool {
    path.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending))
}

/// Whether a path fits a pattern: `*` stands for one whole part, a pattern that ends with `/` for everything below it.
pub(super) fn fits(pattern: &str, path: &str) -> bool {
    let mut path = path.split('/');
    for part in pattern.split('/') {
        match path.next() {
            // The empty part behind the last slash of a pattern.
            Some(_) if part.is_empty() => return true,
            Some(have) if part == "*" || part == have => {}
            _ => return false,
        }
    }
    path.next().is_none()
}

/// Reads the files below a folder, without what is hidden or built.
fn walk(folder: &Path, inside: &str, files: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if inside.is_empty() { name.clone() } else { format!("{inside}/{name}") };
        let kind = entry.file_type()?;
        // Cargo marks its target folders with a tag, whatever they are called.
        let built = || name == "target" || entry.path().join("CACHEDIR.TAG").exists();
        if kind.is_dir() && !name.starts_with('.') && !built() {
            walk(&entry.path(), &path, files)?;
        } else if kind.is_file() && has_ending(&name, &["rs", "sql", "lua", "md"]) {
            let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
            files.push(Source::new(path, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_whole_parts() {
        assert!(fits("crates/*/tests/", "crates/hapax/tests/it/main.rs"));
        assert!(fits("crates/hapax/src/lib.rs", "crates/hapax/src/lib.rs"));
        assert!(!fits("crates/hapax/src/lib.rs", "crates/hapax/src/lib.rs/x"));
        assert!(!fits("crates/hapax/src/store/", "crates/hapax/src/stores/x.rs"));
        assert!(!fits("crates/*/tests/", "crates/tests/it.rs"));
    }
}
