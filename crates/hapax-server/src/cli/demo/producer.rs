//! Who sends the errands: two producers with connections of their own, and a third sending after the fact.

use hapax::{Enqueue, Hapax};
use tokio::sync::watch;

use super::errand::Errand;
use super::plan::{LATE_EVERY, RACE_EVERY, REPEAT_EVERY};
use crate::exit::Failure;

/// Errands to a transaction: small, so that two producers really meet.
const BATCH: u64 = 50;

/// What one producer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Sends that the store took as new work.
    pub(super) accepted: u64,
    /// Sends that it refused as duplicates.
    pub(super) refused: u64,
}

impl Sent {
    /// Adds what another did.
    pub(super) fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
    }
}

/// Sends each errand up to `jobs`, and every fifth one again a little later, never past what is allowed.
pub(super) async fn first(hapax: Hapax, jobs: u64, allowed: watch::Receiver<u64>) -> Result<Sent, Failure> {
    let repeats = |from: u64, to: u64| (from..to).filter(|number| number % REPEAT_EVERY == 0).collect::<Vec<_>>();
    let (mut sent, mut from) = (Sent::default(), 0);
    let mut again = Vec::new();
    while from < jobs {
        let to = wait_for_more(from, jobs, allowed.clone()).await;
        sent.add(send(&hapax, from..to).await?);
        sent.add(send(&hapax, std::mem::replace(&mut again, repeats(from, to))).await?);
        from = to;
    }
    sent.add(send(&hapax, again).await?);
    Ok(sent)
}

/// Sends every seventh errand at the same time as the first producer does.
pub(super) async fn second(hapax: Hapax, jobs: u64, allowed: watch::Receiver<u64>) -> Result<Sent, Failure> {
    let (mut sent, mut from) = (Sent::default(), 0);
    while from < jobs {
        let to = wait_for_more(from, jobs, allowed.clone()).await;
        sent.add(send(&hapax, (from..to).filter(|number| number % RACE_EVERY == 0)).await?);
        from = to;
    }
    Ok(sent)
}

/// Sends some errands whose jobs are done.
pub(super) async fn late(hapax: &Hapax, jobs: u64) -> Result<Sent, Failure> {
    send(hapax, (0..jobs).filter(|number| number % LATE_EVERY == 0)).await
}

/// The end of the next batch, once it is allowed.
async fn wait_for_more(from: u64, jobs: u64, mut allowed: watch::Receiver<u64>) -> u64 {
    match allowed.wait_for(|most| *most > from).await {
        Ok(most) => (*most).min(from + BATCH).min(jobs),
        // Nobody holds it back any more.
        Err(_) => (from + BATCH).min(jobs),
    }
}

async fn send(hapax: &Hapax, numbers: impl IntoIterator<Item = u64>) -> Result<Sent, Failure> {
    let jobs = numbers.into_iter().map(|number| Enqueue::of(&Errand::new(number)));
    let mut sent = Sent::default();
    for answer in hapax.enqueue_many(jobs).await? {
        let counter = if answer?.existed { &mut sent.refused } else { &mut sent.accepted };
        *counter += 1;
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_errand_is_accepted_once_whoever_sends_it() {
        let (hapax, jobs) = (Hapax::memory(), 420);
        let (allow, allowed) = watch::channel(jobs);
        let (one, two) =
            tokio::join!(first(hapax.clone(), jobs, allowed.clone()), second(hapax.clone(), jobs, allowed));
        drop(allow);
        let mut sent = one.expect("the memory store takes all");
        sent.add(two.expect("the memory store takes all"));
        sent.add(late(&hapax, jobs).await.expect("the memory store takes all"));
        let repeats = jobs / REPEAT_EVERY + jobs / RACE_EVERY + jobs / LATE_EVERY;
        assert_eq!(sent, Sent { accepted: jobs, refused: repeats });
        let counted = hapax.counters().await.expect("memory").duplicates_refused;
        assert_eq!(counted, repeats, "the store counts what it refuses");
    }

    #[tokio::test]
    async fn nothing_is_sent_past_what_is_allowed() {
        let hapax = Hapax::memory();
        let (allow, allowed) = watch::channel(60);
        let sending = tokio::spawn(first(hapax.clone(), 200, allowed));
        while hapax.queues().await.expect("memory").first().is_none_or(|queue| queue.counts[1].1 < 60) {
            tokio::task::yield_now().await;
        }
        assert!(!sending.is_finished());
        allow.send_replace(200);
        let sent = sending.await.expect("no panic").expect("the memory store takes all");
        assert_eq!(sent.accepted, 200);
    }
}
