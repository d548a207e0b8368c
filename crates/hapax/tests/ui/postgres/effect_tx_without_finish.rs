//! A task that takes an `EffectTx` and does not return `Finished` forgot to commit.

use hapax::host::EffectTx;
use hapax::{Hapax, Host, Job, JobError};
use sqlx::Postgres;

#[derive(serde::Serialize, serde::Deserialize)]
struct CancelOrder;

impl Job for CancelOrder {
    const KIND: &'static str = "cancel-order";
}

async fn forgets(_job: CancelOrder, _tx: EffectTx<Postgres>) -> Result<(), JobError> {
    Ok(())
}

fn main() {
    let _ = Host::builder(Hapax::memory(), ()).task(forgets);
}
