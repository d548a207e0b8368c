//! Clients of other languages: PostgreSQL is shared, so tests write to it as programs without hapax do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::Failure;

use super::machine::{self, failed};
use super::{Answers, Site};

/// Versions are fixed, so that a test does not change its mind over night.
const PSYCOPG: &str = "3.3.9";
const PG: &str = "8.23.1";

/// The interpreter with psycopg.
pub(super) const PYTHON: &str = "HAPAX_TEST_PYTHON";
/// The folder of modules with pg.
pub(super) const NODE_MODULES: &str = "HAPAX_TEST_NODE_MODULES";

/// Prepares an interpreter that has psycopg and a folder of modules that has pg.
pub(super) fn up(site: &Site) -> Result<Answers, Failure> {
    let python = python(&site.home.join("python"))?;
    let modules = node(&site.home.join("node"))?;
    let shown = |path: PathBuf| path.display().to_string();
    Ok(vec![(PYTHON, shown(python)), (NODE_MODULES, shown(modules))])
}

/// A program, installed if it is missing and the machine is ours.
fn program(name: &str, packages: &[&str]) -> Result<PathBuf, Failure> {
    if let Some(found) = machine::program(name, &[]) {
        return Ok(found);
    }
    machine::install(packages).map_err(|failure| told(name, failure))?;
    machine::program(name, &[]).ok_or_else(|| failed(format!("{name} is installed, but not on the PATH")))
}

/// A failure with the name of what failed.
fn told(name: &str, failure: Failure) -> Failure {
    let (Failure::Failed(why) | Failure::Usage(why)) = failure;
    failed(format!("{name}: {why}"))
}

/// The interpreter of a virtual environment in `folder`.
fn python(folder: &Path) -> Result<PathBuf, Failure> {
    let own = folder.join("bin/python3");
    let version = || machine::run(Command::new(&own).args(["-c", "import psycopg; print(psycopg.__version__)"]));
    if version().is_ok_and(|version| version == PSYCOPG) {
        return Ok(own);
    }
    let python = program("python3", &["python3", "python3-venv"])?;
    let make = || machine::run(Command::new(&python).args(["-m", "venv", "--clear"]).arg(folder));
    // Debian packs the interpreter without what makes environments.
    if make().is_err() {
        machine::install(&["python3-venv"]).map_err(|failure| told("python3 without venv", failure))?;
        make()?;
    }
    let what = format!("psycopg[binary]=={PSYCOPG}");
    machine::run(Command::new(&own).args(["-m", "pip", "install", "--quiet", &what]))?;
    version()?;
    Ok(own)
}

/// The folder of modules in `folder`.
fn node(folder: &Path) -> Result<PathBuf, Failure> {
    let modules = folder.join("node_modules");
    program("node", &["nodejs", "npm"])?;
    let manifest = fs::read_to_string(modules.join("pg/package.json")).unwrap_or_default();
    if manifest.contains(&format!("\"version\": \"{PG}\"")) {
        return Ok(modules);
    }
    let npm = program("npm", &["nodejs", "npm"])?;
    machine::folder(folder)?;
    let mut install = Command::new(npm);
    install.args(["install", "--no-audit", "--no-fund", "--no-save", &format!("pg@{PG}"), "--prefix"]).arg(folder);
    machine::run(&mut install)?;
    Ok(modules)
}
