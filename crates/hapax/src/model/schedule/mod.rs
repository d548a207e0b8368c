//! WHEN? Cron expressions, lengths of time and periods, as pure arithmetic on the calendar.
//!
//! Every answer is made from an instant and a zone that the caller hands in; the zones come from the database that is
//! built into the program, so that two hosts with the same hapax agree whatever their own files say. Names of instants
//! are *local* times: two tz databases may disagree about the instant, never about the name.
//!
//! This room does not know: what time it is, the zone of the host, stores, jobs, or what is done at an instant.

mod cron;
mod length;
mod period;
mod walk;

use jiff::tz::TimeZone;

use crate::error::{Error, Result};

pub use cron::Cron;
pub use length::Length;
pub use period::{Period, Span};
pub use walk::Occurrence;

/// The zone with this IANA name, such as `Europe/Berlin`; `UTC` is one as well.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) when there is none of this name.
pub fn zone(name: &str) -> Result<TimeZone> {
    if name.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| {
        let mend = "use a name of the IANA database, such as UTC, Europe/Berlin or America/New_York";
        Error::invalid("zone", format!("`{name}` is not known"), mend)
    })
}

#[cfg(test)]
mod tests;
