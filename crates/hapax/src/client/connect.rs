//! Opening a store by its address. The one file of the client that names concrete stores.

use std::sync::Arc;

use serde::Serialize;

use super::Hapax;
use crate::error::{Error, Result};
use crate::store::memory::MemoryStore;

/// Versions of hapax's schema: what a store has, and what this program would bring it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SchemaVersion {
    /// The store's; nothing when there is no store yet.
    pub found: Option<u32>,
    /// The newest one that this program knows.
    pub known: u32,
}

impl Hapax {
    /// A store in this process's memory: for first steps, tests, and singletons within one process.
    pub fn memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    /// The embedded store in the file at `path`, made and migrated if need be. It protects the processes of one host.
    ///
    /// # Errors
    /// [`Unreachable`](crate::ErrorKind::Unreachable), [`ReadOnly`](crate::ErrorKind::ReadOnly),
    /// [`Unusable`](crate::ErrorKind::Unusable) (not SQLite, damaged, or on a network file system) and
    /// [`TooNew`](crate::ErrorKind::TooNew), each with the mend.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(path: impl AsRef<std::path::Path>) -> Result<Self> {
        let store = crate::store::sqlite::SqliteStore::open(path).await?;
        Ok(Self::with_store(Arc::new(store)))
    }

    /// The store in the PostgreSQL database at `url`, whose tables [`migrate`](Self::migrate) has made. It protects
    /// every host that reaches the server. For options see
    /// [`PostgresStore::options`](crate::store::postgres::PostgresStore).
    ///
    /// # Errors
    /// See [`PostgresOptions::open`](crate::store::postgres::PostgresOptions::open).
    #[cfg(feature = "postgres")]
    pub async fn postgres(url: &str) -> Result<Self> {
        let store = crate::store::postgres::PostgresStore::options().open(url).await?;
        Ok(Self::with_store(Arc::new(store)))
    }

    /// The store at `url`: `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE` (with `?schema=NAME` for tables
    /// in another schema than `hapax`) or `memory:`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a scheme that this program does not know, and what opening the store
    /// can say.
    pub async fn connect(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        match scheme {
            "memory" if rest.trim_matches('/').is_empty() => Ok(Self::memory()),
            #[cfg(feature = "sqlite")]
            "sqlite" => Self::sqlite(sqlite_path(rest)?).await,
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Self::postgres(url).await,
            _ => Err(unknown_scheme(url)),
        }
    }

    /// Makes the tables of the store at `url`, or brings them up to date. A file does so by itself whenever it is
    /// opened; a server's database is changed by this alone. Many may do so at once.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn migrate(url: &str) -> Result<()> {
        match url.split_once(':') {
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", _)) => crate::store::postgres::PostgresStore::options().migrate(url).await,
            _ => {
                let opened = Self::connect(url).await?;
                opened.store().close().await;
                Ok(())
            }
        }
    }
}

impl SchemaVersion {
    /// The version of an SQLite file that this program makes.
    #[cfg(feature = "sqlite")]
    pub const SQLITE: u32 = crate::store::sqlite::VERSION;

    /// The version of PostgreSQL tables that this program makes.
    #[cfg(feature = "postgres")]
    pub const POSTGRES: u32 = crate::store::postgres::VERSION;

    /// Looks at the store at `url`, which is neither made nor changed.
    ///
    /// # Errors
    /// As [`Hapax::connect`].
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub async fn of(url: &str) -> Result<Self> {
        match url.split_once(':') {
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", _)) => {
                let found = crate::store::postgres::PostgresStore::options().version_of(url).await?;
                Ok(Self { found, known: Self::POSTGRES })
            }
            #[cfg(feature = "sqlite")]
            Some(("sqlite", rest)) => {
                let found = crate::store::sqlite::SqliteStore::version_of(sqlite_path(rest)?).await?;
                Ok(Self { found, known: Self::SQLITE })
            }
            _ => Err(unknown_scheme(url)),
        }
    }

    /// Whether opening the store would change its schema.
    pub fn is_behind(self) -> bool {
        self.found.is_none_or(|found| found < self.known)
    }
}

/// `sqlite:relative`, `sqlite:/absolute` and `sqlite:///absolute` all name files.
#[cfg(feature = "sqlite")]
fn sqlite_path(rest: &str) -> Result<&str> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Err(Error::invalid("store URL", "names no file", "use sqlite:PATH, such as sqlite:hapax.db"));
    }
    Ok(path)
}

fn unknown_scheme(url: &str) -> Error {
    let what = format!("`{}` has no scheme that this program knows", without_password(url));
    Error::invalid("store URL", what, "use sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE or memory:")
}

/// An address for messages: `user:password@` is no business of a log.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 < at => format!("{}…{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unknown_schemes_name_the_field_and_hide_the_password() {
        for url in ["", "hapax.db", "mysql://me:secret@db/x", "redis://x", "memory:x", "sqlite:", "sqlite://"] {
            let error = Hapax::connect(url).await.map(drop).expect_err(url).to_string();
            assert!(error.contains("store URL") && !error.contains("secret"), "{url}: {error}");
        }
        assert!(Hapax::connect("memory:").await.is_ok());
    }
}
