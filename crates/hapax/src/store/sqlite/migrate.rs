//! Whose file it is, and how it gets its tables.
//!
//! The file may hold tables of the user's as well: that is how an effect commits with its finish. Ours all begin with
//! `hapax_`. Many processes may open a fresh file at once; each step looks again under the write lock.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::fault;
use super::rows::{at_most_one, change, exactly_one, fetch};
use super::writer::patiently;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Fence;

/// The newest schema that this program knows, and the version of a fresh file.
pub const VERSION: u32 = 1;

/// "hapx", for `file(1)` and for people; set only in a file that had no tables before.
const APPLICATION_ID: i64 = 0x6861_7078;

/// How long a look at a file waits for one who recovers it.
const LOOK_WAITS: Duration = Duration::from_secs(5);

/// One step of the schema. Once released, its text never changes: the next step mends it.
///
/// Statements pin their index with `indexed by`: drop an index only in a step that raises `min_program`.
struct Migration {
    version: u32,
    /// The oldest schema that a program must know to work with the file after this step.
    min_program: u32,
    text: &'static str,
}

const MIGRATIONS: [Migration; 1] =
    [Migration { version: 1, min_program: 1, text: include_str!("migrations/0001_initial.sql") }];

const _: () = assert!(MIGRATIONS[MIGRATIONS.len() - 1].version == VERSION, "the last step leads to the version");

/// What a file says of itself.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) version: u32,
    pub(super) min_program: u32,
    pub(super) fence: Fence,
    pub(super) boot_id: String,
}

/// What a file says of itself; nothing if it has our table without its row.
pub(super) fn meta(connection: &Connection) -> rusqlite::Result<Option<Meta>> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Meta { version: row.get(0)?, min_program: row.get(1)?, fence: row.get(2)?, boot_id: row.get(3)? })
    };
    Ok(at_most_one(fetch!(connection, include_str!("sql/meta/find.sql"), read)))
}

/// What is in a file.
enum Found {
    Ours(Meta),
    /// Tables of the user's, or none at all.
    NotYetOurs {
        empty: bool,
    },
}

/// The version of the schema in a file, which stays as it is; nothing when there is no file, or none of our tables.
pub(super) fn version_of(file: &Path) -> Result<Option<u32>> {
    if !file.exists() {
        return Ok(None);
    }
    let cannot = |cause| fault::before_commit(file, cause);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(cannot)?;
    connection.busy_timeout(LOOK_WAITS).map_err(cannot)?;
    match judge(identify(&connection).map_err(cannot)?, file)? {
        Found::Ours(meta) => Ok(Some(meta.version)),
        Found::NotYetOurs { .. } => Ok(None),
    }
}

/// Refuses a file that this program may not touch, without having changed it.
pub(super) fn look(connection: &Connection, file: &Path, until: Deadline) -> Result<()> {
    let found = patiently(until, || identify(connection));
    judge(found.map_err(|cause| fault::before_commit(file, cause))?, file).map(drop)
}

/// Refuses a connection of the user's whose file has no tables of ours, or newer ones.
pub(super) fn known(connection: &Connection, file: &Path) -> Result<()> {
    match meta(connection).map_err(|cause| fault::before_commit(file, cause))? {
        Some(meta) => judge(Found::Ours(meta), file).map(drop),
        None => {
            Err(Error::did_not_happen(ErrorKind::Unusable, format!("{}: the hapax tables are empty", file.display())))
        }
    }
}

/// Brings the tables up to date and ends the leases of an earlier boot, in one transaction.
pub(super) fn migrate(connection: &Connection, file: &Path, (clock, boot_id): (&Clock, &str)) -> Result<()> {
    let before = |cause| fault::before_commit(file, cause);
    let found = judge(identify(connection).map_err(before)?, file)?;
    let wall = clock.now().wall;
    let known = match &found {
        Found::Ours(meta) => meta.version,
        Found::NotYetOurs { empty } => {
            if *empty && application_id(connection).map_err(before)? == 0 {
                connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(before)?;
            }
            0
        }
    };
    for step in MIGRATIONS.iter().filter(|step| step.version > known) {
        connection.execute_batch(step.text).map_err(before)?;
        let (version, min_program) = (step.version, step.min_program);
        let changed = if version == 1 {
            let text = include_str!("sql/meta/insert.sql");
            insert_meta(connection, text, (version, min_program, boot_id, wall)).map_err(before)?
        } else {
            raise_version(connection, version, min_program).map_err(before)?
        };
        exactly_one(changed).map_err(before)?;
    }
    match found {
        // Where the boot cannot be told apart, leases end late rather than early: nobody is known to be gone.
        Found::Ours(_) if boot_id == UNKNOWN_BOOT => Ok(()),
        Found::Ours(meta) if meta.boot_id == UNKNOWN_BOOT => set_boot(connection, boot_id).map_err(before),
        Found::Ours(meta) if meta.boot_id != boot_id => end_leases(connection, boot_id).map_err(before),
        _ => Ok(()),
    }
}

fn insert_meta(
    connection: &Connection,
    text: &str,
    (version, min_program, boot_id, wall): (u32, u32, &str, crate::clock::Micros),
) -> rusqlite::Result<usize> {
    Ok(change!(connection, text, version = version, min_program = min_program, boot_id = boot_id, wall = wall))
}

fn raise_version(connection: &Connection, version: u32, min_program: u32) -> rusqlite::Result<usize> {
    let text = include_str!("sql/meta/set_version.sql");
    Ok(change!(connection, text, version = version, min_program = min_program))
}

/// Stands for the boot id of a process that cannot read it.
pub(super) const UNKNOWN_BOOT: &str = "unknown";

/// The lease clock began anew with the machine: whoever held a lease is gone, and its end would be misread.
fn end_leases(connection: &Connection, boot_id: &str) -> rusqlite::Result<()> {
    change!(connection, include_str!("sql/instances/end_leases.sql"));
    change!(connection, include_str!("sql/locks/end_leases.sql"));
    change!(connection, include_str!("sql/keys/end_leases.sql"));
    change!(connection, include_str!("sql/jobs/end_deadlines.sql"));
    set_boot(connection, boot_id)
}

fn set_boot(connection: &Connection, boot_id: &str) -> rusqlite::Result<()> {
    exactly_one(change!(connection, include_str!("sql/meta/set_boot.sql"), boot_id = boot_id))
}

fn identify(connection: &Connection) -> rusqlite::Result<Found> {
    let mut names = connection.prepare("select name from sqlite_schema where type = 'table'")?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    if names.iter().any(|name| name == "hapax_meta") {
        // A table of this name without our columns or row is somebody else's.
        if let Ok(Some(meta)) = meta(connection) {
            return Ok(Found::Ours(meta));
        }
    }
    if let Some(name) = names.iter().find(|name| name.starts_with("hapax_")) {
        let text = format!("the table {name} is in the file, but not as hapax makes it");
        return Err(rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, text.into()));
    }
    Ok(Found::NotYetOurs { empty: names.is_empty() })
}

fn judge(found: Found, file: &Path) -> Result<Found> {
    match found {
        Found::Ours(meta) if meta.min_program > VERSION => {
            let text = format!(
                "{}: the file was written by a newer hapax. Its schema has version {} and asks for a program that \
                 knows version {}; this program, hapax {}, knows version {VERSION}. Update this program, or name \
                 another file",
                file.display(),
                meta.version,
                meta.min_program,
                env!("CARGO_PKG_VERSION"),
            );
            Err(Error::did_not_happen(ErrorKind::TooNew, text))
        }
        found => Ok(found),
    }
}

fn application_id(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "application_id", |row| row.get(0))
}
