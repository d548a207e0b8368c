//! Runs the program against a store in a temporary folder, with nothing of the developer's environment in it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The built program.
pub(crate) const HAPAX: &str = env!("CARGO_BIN_EXE_hapax");

/// A folder with a store in it.
pub(crate) struct Cli {
    folder: TempDir,
}

/// What a run of the program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Cli {
    /// A fresh folder; the store is made by whoever needs it.
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The store's file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("test.db")
    }

    /// The store's address.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    /// Runs it on the store.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "")
    }

    /// Runs it on the store with this on stdin.
    pub(crate) fn run_with(&self, arguments: &[&str], stdin: &str) -> Ran {
        let mut command = bare(self.folder());
        command.env("HAPAX_STORE_URL", self.url()).args(arguments);
        ran(command, stdin)
    }

    /// Runs it, which must work, and gives its text.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    /// Runs it with `-o json`, which must work, and gives the document.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["-o", "json"]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.json()
    }

    /// Enqueues a job and gives its id.
    pub(crate) fn push(&self, arguments: &[&str]) -> String {
        self.text(&[&["job", "push"], arguments].concat()).trim().to_owned()
    }
}

impl Ran {
    /// Stdout as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// Stdout as one JSON document a line.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect("JSON on each line")).collect()
    }
}

/// The program with an empty environment, in this folder.
pub(crate) fn bare(folder: &Path) -> Command {
    let mut command = Command::new(HAPAX);
    command.env_clear().current_dir(folder);
    command
}

/// Runs a command to its end.
pub(crate) fn ran(mut command: Command, stdin: &str) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built program starts");
    let mut input = child.stdin.take().expect("it was asked for");
    let text = stdin.to_owned();
    // In a thread: a program that does not read its input, or prints before it has, must not stop the test.
    let writing = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
    let output = child.wait_with_output().expect("it ends");
    writing.join().expect("writing does not panic");
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// The blocks of a language in a page of the docs, in order.
pub(crate) fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let parts = page.split("```").skip(1).step_by(2);
    parts.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}
