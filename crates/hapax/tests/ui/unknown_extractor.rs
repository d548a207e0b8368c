//! A task can ask only for what a run or the host's state can give.

use hapax::host::State;
use hapax::{Hapax, Host, Job};

#[derive(serde::Serialize, serde::Deserialize)]
struct Notify;

impl Job for Notify {
    const KIND: &'static str = "notify";
}

struct Mailer;

async fn asks_for_anything(_job: Notify, _mailer: Mailer) {}

async fn asks_for_missing_state(_job: Notify, State(_mailer): State<Mailer>) {}

fn main() {
    let _ = Host::builder(Hapax::memory(), ()).task(asks_for_anything);
    let _ = Host::builder(Hapax::memory(), ()).task(asks_for_missing_state);
}
