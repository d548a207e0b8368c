//! What is not a task at all, or returns what nobody understands.

use hapax::{Hapax, Host, Job};

#[derive(serde::Serialize, serde::Deserialize)]
struct Notify;

impl Job for Notify {
    const KIND: &'static str = "notify";
}

async fn takes_no_job(_order: i64) {}

async fn returns_a_number(_job: Notify) -> i64 {
    7
}

fn is_not_async(_job: Notify) {}

async fn is_not_send(_job: Notify) {
    let here = std::rc::Rc::new(1);
    std::future::ready(()).await;
    drop(here);
}

fn main() {
    let _ = Host::builder(Hapax::memory(), ()).task(takes_no_job);
    let _ = Host::builder(Hapax::memory(), ()).task(returns_a_number);
    let _ = Host::builder(Hapax::memory(), ()).task(is_not_async);
    let _ = Host::builder(Hapax::memory(), ()).task(is_not_send);
}
