//! Which store: `--store`, else `HAPAX_STORE_URL`, else an SQLite file in the user's state folder.
//!
//! A file is made when it is first used. A server's database is changed by `hapax migrate` alone, so that whoever only
//! may read and write rows can run everything else.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use hapax::{Hapax, SchemaVersion};

use crate::exit::{Exit, Failure};
use crate::output;

/// What a URL may look like, for those whose URL does not.
const URLS: &str = "sqlite:PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE";

/// The environment variable that names the store.
pub(crate) const URL_VARIABLE: &str = "HAPAX_STORE_URL";

/// Where a store is, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    url: String,
    /// The file, when it is one.
    file: Option<PathBuf>,
    /// Nobody named it: it is the default one.
    default: bool,
}

impl Place {
    /// The store that was asked for.
    ///
    /// An empty `HAPAX_STORE_URL` is an error and not "unset": it is what a missing secret looks like, and work that
    /// went into a file on this host instead would wait there for nobody.
    pub(crate) fn find(flag: Option<&str>) -> Result<Self, Failure> {
        Self::find_in(flag, |name| std::env::var_os(name))
    }

    fn find_in(flag: Option<&str>, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        if let Some(url) = flag {
            return Self::named(url, "--store");
        }
        if let Some(url) = variable(URL_VARIABLE) {
            let url = url.into_string().map_err(|_| {
                Failure::usage(format!("{URL_VARIABLE} is not UTF-8"), format!("set it to a store URL: {URLS}"))
            })?;
            return Self::named(&url, URL_VARIABLE);
        }
        // By the XDG specification, a relative path counts as not set.
        let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
        let Some(state) = state else {
            let what = "no store is named, and neither XDG_STATE_HOME nor HOME says where the default one would be";
            let mend = format!("give --store URL, or set {URL_VARIABLE}, XDG_STATE_HOME or HOME");
            return Err(Failure::new(Exit::Unusable, what).mend(mend));
        };
        let file = state.join("hapax/hapax.db");
        let text = file.to_str().ok_or_else(|| {
            let what = format!("the state folder {} is not UTF-8", file.display());
            Failure::new(Exit::Unusable, what).mend(format!("give --store URL, or set {URL_VARIABLE}"))
        })?;
        Ok(Self { url: format!("sqlite:{text}"), file: Some(file), default: true })
    }

    fn named(url: &str, by: &str) -> Result<Self, Failure> {
        if url.is_empty() {
            return Err(Failure::usage(format!("{by} is empty"), format!("give a store URL: {URLS}")));
        }
        if url.starts_with("memory:") {
            let what = format!("{by} names the memory store, which would be gone when this command ends");
            return Err(Failure::usage(what, format!("use {URLS}")));
        }
        let file = url.strip_prefix("sqlite:").map(|rest| PathBuf::from(rest.strip_prefix("//").unwrap_or(rest)));
        Ok(Self { url: url.to_owned(), file, default: false })
    }

    /// The file, when the store is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether it is a file that is not there yet.
    pub(crate) fn is_missing(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.exists())
    }

    /// The schema that the store has, and the one that this program knows. Makes and changes nothing.
    pub(crate) async fn schema(&self) -> Result<SchemaVersion, Failure> {
        // Its folder may be as missing as the file.
        if self.is_missing() {
            return Ok(SchemaVersion { found: None, known: SchemaVersion::SQLITE });
        }
        Ok(SchemaVersion::of(&self.url).await?)
    }

    /// Brings the store's schema to this program's version, and gives it as it is then.
    pub(crate) async fn migrate(&self) -> Result<SchemaVersion, Failure> {
        if self.file.is_some() {
            drop(self.open().await?);
        } else {
            Hapax::migrate(&self.url).await?;
        }
        self.schema().await
    }

    /// The URL, with its password: for another process of this program, never for a message or an argument.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL with another schema: of those that it names, the last one counts.
    pub(crate) fn in_schema(&self, name: &str) -> String {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{separator}schema={name}", self.url)
    }

    /// Opens the store; a file is made and migrated if need be, and stderr says so.
    pub(crate) async fn open(&self) -> Result<Hapax, Failure> {
        let missing = self.is_missing();
        if let (true, Some(folder)) = (self.default && missing, self.file().and_then(Path::parent)) {
            make_folder(folder)?;
        }
        let hapax = Hapax::connect(&self.url).await?;
        if let (true, Some(file)) = (missing, self.file()) {
            output::say(&format!(
                "made the store {}; an SQLite file protects the processes of this one host",
                file.display()
            ));
        }
        Ok(hapax)
    }
}

/// Payloads are nobody else's business: only the user may look into the folder.
fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        let what = format!("the folder {} of the default store cannot be made: {error}", folder.display());
        Failure::new(Exit::StoreDown, what).mend(format!("make it, or give --store URL, or set {URL_VARIABLE}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(flag: Option<&str>, set: &[(&str, &str)]) -> Result<Place, Failure> {
        Place::find_in(flag, |name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
    }

    fn file(flag: Option<&str>, set: &[(&str, &str)]) -> String {
        let place = find(flag, set).expect("a place");
        place.file().expect("a file").display().to_string()
    }

    #[test]
    fn the_flag_wins_then_the_variable_then_the_state_folder() {
        let all = [(URL_VARIABLE, "sqlite:/v.db"), ("XDG_STATE_HOME", "/state"), ("HOME", "/home/me")];
        assert_eq!(file(Some("sqlite:///f.db"), &all), "/f.db");
        assert_eq!(file(None, &all), "/v.db");
        assert_eq!(file(None, &all[1..]), "/state/hapax/hapax.db");
        assert_eq!(file(None, &all[2..]), "/home/me/.local/state/hapax/hapax.db");
        assert_eq!(file(None, &[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]), "/h/.local/state/hapax/hapax.db");
    }

    #[test]
    fn without_any_of_them_the_error_says_what_to_set() {
        let error = find(None, &[("HOME", "")]).expect_err("nowhere to go");
        assert_eq!(error.exit(), Exit::Unusable);
        let mend = error.help_text().expect("a mend");
        assert!(["--store", URL_VARIABLE, "XDG_STATE_HOME", "HOME"].iter().all(|name| mend.contains(name)), "{mend}");
    }

    #[test]
    fn an_empty_variable_is_no_default() {
        let error = find(None, &[(URL_VARIABLE, ""), ("HOME", "/h")]).expect_err("refused");
        assert!(error.to_string().contains(URL_VARIABLE));
        assert!(find(Some("memory:"), &[]).is_err(), "acknowledged and gone would be a lie");
    }
}
