//! Lengths of time as people write them: `90s`, `1h30m`, `2d`.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};

/// Units, longest first, with their milliseconds.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A length of time in whole milliseconds. However it was written, it is printed in one way: `90m` and `1h30m` are the
/// same length and the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Length(u64);

impl Length {
    /// The length of so many milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// The length that `text` says: numbers with `ms`, `s`, `m`, `h`, `d` or `w`, in any number and order. `0` alone
    /// is nothing at all. `field` is what the error names.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when it says anything else, or more than 292 million years.
    pub fn parse(field: &str, text: &str) -> Result<Self> {
        let mend = "write a number with its unit, such as 30s, 5m, 1h30m or 2d";
        let wrong = |what: String| Error::invalid(field, what, mend);
        let mut rest = text.trim();
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(wrong("is empty".to_owned()));
        }
        let mut ms: u64 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(letters);
            let Some((_, each)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(wrong(format!("`{text}` is no length of time")));
            };
            let number: u64 = number.parse().map_err(|_| wrong(format!("`{text}` is no length of time")))?;
            let part = number.checked_mul(*each);
            ms = part.and_then(|part| ms.checked_add(part)).ok_or_else(|| wrong(format!("`{text}` is too long")))?;
            rest = after.trim_start();
        }
        Ok(Self(ms))
    }

    /// In milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// As the standard library has it.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut left = self.0;
        for (unit, each) in UNITS {
            let number = left / each;
            left %= each;
            if number > 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        Ok(())
    }
}
