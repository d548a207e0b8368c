//! What an effect may not do on the connection that writes, which [`EffectTx`](super::EffectTx) cannot hide from those
//! who write SQL.
//!
//! 1. While it runs, SQLite's authorizer refuses what would end its transaction or outlast it: BEGIN, COMMIT, ROLLBACK,
//!    ATTACH, DETACH, and pragmas that set something. What was tried is remembered, for an error that names it.
//! 2. A statement may have SQLite roll everything back (`insert or rollback`, `raise(rollback)`, a full disk), after
//!    which each further statement would be a transaction of its own. A commit hook undoes those, and a savepoint tells
//!    whether the transaction is still the one that we began.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};

use crate::error::{Error, ErrorKind, Result};

/// Pragmas whose argument says what to show; and one that ends with the transaction.
const HARMLESS: [&str; 10] = [
    "table_info",
    "table_xinfo",
    "index_list",
    "index_info",
    "index_xinfo",
    "foreign_key_list",
    "foreign_key_check",
    "integrity_check",
    "quick_check",
    "defer_foreign_keys",
];

/// Watches over one connection. The authorizer stays in place for good, since SQLite prepares every statement anew
/// after a change of it; it looks on but for the time of an effect.
#[derive(Debug, Default)]
pub(super) struct Guard(Arc<Mutex<Watch>>);

#[derive(Debug, Default)]
struct Watch {
    closed: bool,
    /// The first thing that was refused, and what to do instead.
    tried: Option<String>,
}

/// An effect under way.
#[must_use]
pub(super) struct Seal<'g> {
    guard: &'g Guard,
    veto: Weak<()>,
}

impl Guard {
    /// Allows only what belongs to an effect from now on, within the open transaction.
    pub(super) fn close(&self, connection: &Connection) -> rusqlite::Result<Seal<'_>> {
        // It is not there yet, or an effect has put another in its place.
        if Arc::strong_count(&self.0) == 1 {
            let watch = Arc::clone(&self.0);
            let judge = move |context: AuthContext<'_>| {
                let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
                match forbidden(&context.action).filter(|_| watch.closed) {
                    Some(tried) => {
                        watch.tried.get_or_insert(tried);
                        Authorization::Deny
                    }
                    None => Authorization::Allow,
                }
            };
            connection.authorizer(Some(judge))?;
        }
        let hook = Arc::new(());
        let seal = Seal { guard: self, veto: Arc::downgrade(&hook) };
        connection.execute_batch("savepoint hapax_effect")?;
        // Last, so that no error leaves it behind. The count lives as long as the hook is in place.
        connection.commit_hook(Some(move || Arc::strong_count(&hook) > 0))?;
        *self.watch() = Watch { closed: true, tried: None };
        Ok(seal)
    }

    fn watch(&self) -> std::sync::MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seal<'_> {
    /// Allows everything again, if the transaction is whole and nothing was tried that would have broken it.
    pub(super) fn open(self, connection: &Connection, succeeded: bool) -> Result<()> {
        let tried = std::mem::take(&mut *self.guard.watch()).tried;
        let vetoed = self.veto.strong_count() > 0;
        let none: Option<fn() -> bool> = None;
        let opened = connection.commit_hook(none);
        let whole = !connection.is_autocommit() && connection.execute_batch("release hapax_effect").is_ok();
        if !whole && !vetoed {
            let text = format!("{ENDED}, and replaced the commit hook; what it did may be there without the finish");
            return Err(Error::may_have_happened(ErrorKind::Effect, text));
        }
        match tried {
            Some(tried) => Err(undone(&tried)),
            None if whole && opened.is_ok() => Ok(()),
            // A failed effect whose transaction SQLite has rolled back by itself is just that.
            None if !succeeded => Ok(()),
            None => Err(undone(ENDED)),
        }
    }
}

fn undone(what: &str) -> Error {
    Error::did_not_happen(ErrorKind::Effect, format!("{what}; all of it was undone"))
}

const ENDED: &str = "the effect ended its transaction by hand or had a statement roll it back; leave that to hapax: \
                     give Ok to commit, Err to undo";

/// What was tried that an effect may not do, and what to do instead.
fn forbidden(action: &AuthAction<'_>) -> Option<String> {
    let text = match action {
        AuthAction::Transaction { operation } => {
            let what = match operation {
                TransactionOperation::Begin => "BEGIN",
                TransactionOperation::Rollback => "ROLLBACK",
                _ => "COMMIT",
            };
            format!("the effect tried {what}; leave that to hapax: give Ok to commit, Err to undo")
        }
        AuthAction::Pragma { pragma_name, pragma_value: Some(value) } => {
            if HARMLESS.iter().any(|name| name.eq_ignore_ascii_case(pragma_name)) {
                return None;
            }
            format!(
                "the effect tried PRAGMA {pragma_name} = {value}, which would outlast it on the connection that hapax \
                 writes with; set it on a connection of your own"
            )
        }
        AuthAction::Attach { filename } => {
            format!("the effect tried ATTACH {filename}; keep what belongs to it in the file of the store")
        }
        AuthAction::Detach { database_name } => {
            format!("the effect tried DETACH {database_name}; use a connection of your own for other files")
        }
        _ => return None,
    };
    Some(text)
}
