//! Identities and texts that validate once: whoever holds one of these values holds a legal one.
//!
//! The limits are the same on every store and stand in its schema too, since plain SQL can enqueue past this file.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, Result};

/// Longest name of a queue, kind, lock or scope, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest once key or message id, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 4_096;
/// Longest payload, in bytes of JSON text.
pub const PAYLOAD_BYTES_MAX: usize = 1_048_576;
/// Longest result, error or progress text that is kept, in bytes; longer ones are cut with a mark.
pub const TEXT_BYTES_MAX: usize = 65_536;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, made by the caller *before* the call it belongs to, so that repeating the call is a no-op.
            #[expect(clippy::new_without_default, reason = "a default id would suggest that two are equal")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The id with this value, as read from a store or from a person.
            pub const fn from_uuid(value: Uuid) -> Self {
                Self(value)
            }

            /// The value as a UUID.
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                let value = Uuid::parse_str(text.trim()).map_err(|_| {
                    Error::invalid("id", format!("`{text}` is not a UUID"), "copy the id as `job list` prints it")
                })?;
                Ok(Self(value))
            }
        }
    };
}

uuid_id! {
    /// A job. Made by the client; also the delivery id that every attempt sends to others.
    JobId
}
uuid_id! {
    /// One claim of jobs by an instance; given back whole when its answer was lost.
    ClaimId
}
uuid_id! {
    /// One host process, from its registration to its end. Never used twice: a dead instance comes back under a new id.
    InstanceId
}
uuid_id! {
    /// One acquisition of a lock or of a once key; asking again with the same id finds the same grant.
    AcquisitionId
}

/// The number that grows with every lease of the whole store.
///
/// A positive `i64`: store epoch times 2^40, plus a counter. Comparable only within one identity (one job, one lock
/// slot, one once key). In JSON a decimal string, since many readers of JSON lose digits past 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(i64);

impl Fence {
    /// The fence with this value, as read from a store.
    pub const fn from_i64(value: i64) -> Self {
        Self(value)
    }

    /// The value to compare with or to store beside a user's own row (`… WHERE id = $1 AND fence <= $2`).
    pub const fn as_i64(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({})", self.0)
    }
}

impl Serialize for Fence {
    fn serialize<S: serde::Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map(Fence).map_err(serde::de::Error::custom)
    }
}

/// Name of a queue, kind, lock, scope or instance: 1 to 128 bytes of UTF-8 without control characters, compared byte
/// by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks `text` as the name of a `field` (`queue`, `kind`, `lock`, …), which the error names.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, over 128 bytes, or has a control character.
    pub fn new(field: &'static str, text: &str) -> Result<Self> {
        check_text(field, text, NAME_BYTES_MAX)?;
        Ok(Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        Self::new("name", &text).map_err(serde::de::Error::custom)
    }
}

/// A place where duplicates are refused. Part of every once key, so that two boundaries never share one by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Boundary {
    /// Enqueue of a job; the scope is its kind.
    Enqueue,
    /// A claim of the key itself ([`Hapax::once`](crate::Hapax::once)); the scope is chosen by the caller.
    Claim,
}

impl Boundary {
    /// The word used in tables, metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Claim => "claim",
        }
    }

    /// The boundary with this word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Enqueue, Self::Claim].into_iter().find(|b| b.as_str() == text)
    }
}

/// A once key: where it counts, and the value that is remembered longer than the work.
///
/// Unique by the SHA-256 of the whole value, kept whole for people: two keys of 4,096 bytes that differ in their last
/// byte are two keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct OnceKey {
    boundary: Boundary,
    scope: Name,
    value: Arc<str>,
}

impl OnceKey {
    /// Checks and builds a key.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the value is empty, over 4,096 bytes, or has a control
    /// character.
    pub fn new(boundary: Boundary, scope: Name, value: &str) -> Result<Self> {
        check_text("once key", value, KEY_BYTES_MAX)?;
        Ok(Self { boundary, scope, value: value.into() })
    }

    /// The boundary at which this key counts.
    pub const fn boundary(&self) -> Boundary {
        self.boundary
    }

    /// The kind of the job, or the scope that the caller chose.
    pub const fn scope(&self) -> &Name {
        &self.scope
    }

    /// The value as the caller gave it.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// SHA-256 of the value: what the stores' unique index holds.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.value.as_bytes()).into()
    }
}

impl fmt::Display for OnceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.boundary.as_str(), self.scope, self.value)
    }
}

/// What the work behind a once key was, as a SHA-256. The same key with another fingerprint is an error, not a
/// duplicate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of some bytes, such as a payload.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The fingerprint with this value, as read from a store.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    /// The first 12 hexadecimal digits, enough for a person to tell two apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{self}"))
    }
}

/// JSON text, at most 1 MiB, kept byte for byte: parsed once, by the task.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Checks that `json` is one JSON value within the limit. The bytes are kept as they are.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is too long or not JSON.
    pub fn new(json: &str) -> Result<Self> {
        if json.len() > PAYLOAD_BYTES_MAX {
            let what = format!("{} bytes, over the limit of {PAYLOAD_BYTES_MAX}", json.len());
            return Err(Error::invalid("payload", what, "store the data elsewhere and send its address"));
        }
        serde_json::from_str::<serde::de::IgnoredAny>(json)
            .map_err(|e| Error::invalid("payload", format!("not JSON: {e}"), "send one JSON value, such as {}"))?;
        Ok(Self(json.into()))
    }

    /// The text as it came back from a store, which had checked it on the way in.
    pub fn from_store(json: String) -> Self {
        Self(json.into())
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// A result, error or reason as it is kept: NUL characters replaced by U+FFFD (no store may fail to close a job over
/// one), and cut at 64 KiB with a mark that says so.
pub fn kept_text(text: &str) -> String {
    let clean = text.replace('\0', "\u{FFFD}");
    if clean.len() <= TEXT_BYTES_MAX {
        return clean;
    }
    let mark = format!("… [cut: {} bytes in all]", clean.len());
    let end = clean.floor_char_boundary(TEXT_BYTES_MAX - mark.len());
    format!("{}{mark}", &clean[..end])
}

fn check_text(field: &'static str, text: &str, bytes_max: usize) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(field, "is empty", "give at least one character"));
    }
    if text.len() > bytes_max {
        let what = format!("is {} bytes long, over the limit of {bytes_max}", text.len());
        return Err(Error::invalid(field, what, "shorten it, or use a hash of it"));
    }
    if let Some(bad) = text.chars().find(|c| c.is_control()) {
        let what = format!("has the control character U+{:04X}", u32::from(bad));
        return Err(Error::invalid(field, what, "remove it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_stated_limits() {
        assert!(Name::new("queue", &"ä".repeat(64)).is_ok(), "128 bytes are allowed");
        assert!(Name::new("queue", &"a".repeat(129)).is_err());
        let empty = Name::new("lock", "").expect_err("the empty name is refused");
        assert!(empty.to_string().contains("lock"), "the error names the field: {empty}");
        assert!(Name::new("kind", "a\0b").is_err());
    }

    #[test]
    fn keys_that_differ_only_at_the_end_are_two() {
        let scope = Name::new("scope", "s").expect("legal");
        let key = |end: &str| {
            OnceKey::new(Boundary::Claim, scope.clone(), &format!("{}{end}", "k".repeat(KEY_BYTES_MAX - 1)))
        };
        assert_ne!(key("a").expect("legal").hash(), key("b").expect("legal").hash());
        assert!(key("ab").is_err(), "4,097 bytes are refused");
    }

    #[test]
    fn payloads_keep_their_bytes() {
        for json in [r#"{"a":"\u0000"}"#, r#""\ud800""#, " [1 , 2]", "null"] {
            assert_eq!(Payload::new(json).expect("legal").as_str(), json);
        }
        assert!(Payload::new("{").is_err());
        assert!(Payload::new("1 2").is_err());
        assert!(Payload::new(&format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX))).is_err());
    }

    #[test]
    fn kept_text_is_clean_and_cut_at_a_character() {
        assert_eq!(kept_text("a\0b"), "a\u{FFFD}b");
        let long = kept_text(&"ä".repeat(TEXT_BYTES_MAX));
        assert!(long.len() <= TEXT_BYTES_MAX);
        assert!(long.ends_with(&format!("[cut: {} bytes in all]", 2 * TEXT_BYTES_MAX)));
    }
}
