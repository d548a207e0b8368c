//! A task that takes an `Effect` and does not return `Finished` forgot to commit.

use hapax::host::Effect;
use hapax::{Hapax, Host, Job, JobError};

#[derive(serde::Serialize, serde::Deserialize)]
struct CancelOrder;

impl Job for CancelOrder {
    const KIND: &'static str = "cancel-order";
}

async fn forgets(_job: CancelOrder, _effect: Effect) -> Result<(), JobError> {
    Ok(())
}

async fn forgets_too(_job: CancelOrder, _effect: Effect) {}

fn main() {
    let _ = Host::builder(Hapax::memory(), ()).task(forgets);
    let _ = Host::builder(Hapax::memory(), ()).task(forgets_too);
}
