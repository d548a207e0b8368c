//! The demo's job: its key, and how long its work takes.

use hapax::{Guarantee, Job};
use serde::{Deserialize, Serialize};

/// Queue of the demo.
pub(super) const QUEUE: &str = "demo";

/// One piece of work that shall take effect once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Errand {
    /// Which piece of work; the once key.
    pub(super) key: String,
    /// How long it takes before its effect.
    pub(super) work_ms: u64,
}

impl Errand {
    /// The `number`th errand: the same whoever sends it, so that a repeat has the same fingerprint.
    pub(super) fn new(number: u64) -> Self {
        Self { key: Self::key_of(number), work_ms: 2 + number * 7 % 11 }
    }

    /// The key of the `number`th errand.
    pub(super) fn key_of(number: u64) -> String {
        format!("order-{number:06}")
    }
}

impl Job for Errand {
    const KIND: &'static str = "demo-errand";
    const QUEUE: &'static str = QUEUE;
    const GUARANTEE: Guarantee = Guarantee::Transactional;

    fn once_key(&self) -> Option<String> {
        Some(self.key.clone())
    }
}
