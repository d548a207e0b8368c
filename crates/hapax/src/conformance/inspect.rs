//! What people see: whole, in order, and without an end to counting.

use std::collections::BTreeSet;

use super::Harness;
use super::world::{World, done, instance, job, lock, name, wish};
use crate::id::JobId;
use crate::model::{COUNT_MAX, ClaimRequest, Due, JobFilter, JobState, NewInstance, NewJob, PAGE_MAX};

/// All ids that pages of `limit` give, one after the other.
async fn pages(w: &World<'_>, filter: JobFilter) -> Vec<JobId> {
    let mut ids: Vec<JobId> = Vec::new();
    loop {
        let page = w.list(JobFilter { before: ids.last().copied(), ..filter.clone() }).await.expect("read");
        assert!(page.len() <= filter.limit as usize);
        if page.is_empty() {
            return ids;
        }
        ids.extend(page.iter().map(|job| job.id));
    }
}

/// The pages of a list cover everything exactly once, newest id first, whatever their size.
pub async fn pages_cover_everything_exactly_once(h: &dyn Harness) {
    let w = World::new(h);
    let jobs: Vec<NewJob> = (0..23).map(|n| NewJob { priority: n % 3, ..job() }).collect();
    w.put(&jobs).await;
    let mut wanted: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    wanted.sort();
    wanted.reverse();
    for limit in [1, 2, 5, 22, 23, 24, 1_000] {
        assert_eq!(pages(&w, JobFilter { limit, ..JobFilter::default() }).await, wanted, "pages of {limit}");
    }
}

/// Filters narrow a list, alone and together.
pub async fn filters_narrow_a_list(h: &dyn Harness) {
    let w = World::new(h);
    let of = |queue: &str, kind: &str| NewJob { queue: name(queue), kind: name(kind), ..job() };
    let jobs = [of("a", "x"), of("a", "y"), of("b", "x"), of("b", "y"), of("A", "x")];
    w.put(&jobs).await;
    w.cancel(jobs[1].id, "test".to_owned()).await.expect("ready");
    w.cancel(jobs[2].id, "test".to_owned()).await.expect("ready");
    let ids = async |queue: Option<&str>, kind: Option<&str>, state: Option<JobState>| -> BTreeSet<JobId> {
        let filter = JobFilter { queue: queue.map(name), kind: kind.map(name), state, limit: 2, before: None };
        pages(&w, filter).await.into_iter().collect()
    };
    let set = |picked: &[usize]| -> BTreeSet<JobId> { picked.iter().map(|n| jobs[*n].id).collect() };
    assert_eq!(ids(Some("a"), None, None).await, set(&[0, 1]));
    assert_eq!(ids(None, Some("x"), None).await, set(&[0, 2, 4]));
    assert_eq!(ids(None, None, Some(JobState::Cancelled)).await, set(&[1, 2]));
    assert_eq!(ids(Some("b"), Some("y"), None).await, set(&[3]));
    assert_eq!(ids(Some("a"), Some("x"), Some(JobState::Ready)).await, set(&[0]));
    assert_eq!(ids(None, Some("x"), Some(JobState::Done)).await, set(&[]));
    assert_eq!(ids(Some("none"), None, None).await, set(&[]));
}

/// A page has at least one place and at most [`PAGE_MAX`].
pub async fn a_page_has_its_limits(h: &dyn Harness) {
    let w = World::new(h);
    let jobs: Vec<NewJob> = (0..=PAGE_MAX).map(|_| job()).collect();
    w.put(&jobs).await;
    for (limit, wanted) in [(0, 1), (1, 1), (PAGE_MAX, PAGE_MAX), (PAGE_MAX + 1, PAGE_MAX), (u32::MAX, PAGE_MAX)] {
        let page = w.list(JobFilter { limit, ..JobFilter::default() }).await.expect("read");
        assert_eq!(page.len(), wanted as usize, "limit {limit}");
    }
}

/// Each queue shows how many jobs stand in each state, in one order; queues are those with jobs, a pause, or a server.
pub async fn queues_show_their_counts(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run(NewJob { queue: name("q"), ..job() }).await;
    w.end(run, done()).await;
    w.put(&[job(), job(), NewJob { due: Due::InMs(1_000), ..job() }, NewJob { queue: name("b"), ..job() }]).await;
    w.pause(name("z"), "test".to_owned()).await.expect("paused");
    w.register(NewInstance { queues: vec![name("c"), name("b")], ..instance() }).await.expect("registered");
    let views = w.queues().await.expect("read");
    assert_eq!(views.iter().map(|view| view.queue.as_str()).collect::<Vec<_>>(), ["b", "c", "q", "z"]);
    let q = &views[2];
    assert_eq!(q.counts.iter().map(|(state, _)| *state).collect::<Vec<_>>(), JobState::ALL);
    assert_eq!(q.counts.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 2, 0, 1, 0, 0, 0]);
    assert_eq!((views[1].counts.iter().map(|(_, n)| n).sum::<u64>(), views[3].pause.is_some()), (0, true));
}

/// A queue whose only server is gone, and that has no jobs, is gone as well.
pub async fn a_queue_without_anything_is_not_shown(h: &dyn Harness) {
    let w = World::new(h);
    let by = w.live().await;
    assert_eq!(w.queues().await.expect("read").len(), 1);
    w.leave(by).await.expect("left");
    assert_eq!(w.queues().await.expect("read"), []);
}

/// Counting stops at [`COUNT_MAX`], so that it never costs more than that.
pub async fn counts_stop_at_their_limit(h: &dyn Harness) {
    let w = World::new(h);
    let limit = usize::try_from(COUNT_MAX).expect("small");
    let jobs: Vec<NewJob> = (0..=limit).map(|_| job()).collect();
    for part in jobs.chunks(2_000) {
        w.put(part).await;
    }
    let ready = w.queues().await.expect("read")[0].counts[1];
    assert_eq!(ready, (JobState::Ready, COUNT_MAX));
    let by = w.live().await;
    let claimed = w.claim(ClaimRequest { queues: vec![(name("q"), 2)], ..wish(by) }).await.expect("claimed").jobs;
    assert_eq!(claimed.len(), 2);
    let ready = w.queues().await.expect("read")[0].counts[1];
    assert_eq!(ready, (JobState::Ready, COUNT_MAX - 1), "below it, it is exact");
}

/// Refused writes can be looked up, newest first, as many as asked for.
pub async fn refusals_are_shown_newest_first(h: &dyn Harness) {
    let w = World::new(h);
    let held = w.hold(&lock("x")).await;
    w.release_lock(held.clone()).await.expect("held");
    let (_, run) = w.run(job()).await;
    w.end(run, done()).await;
    w.release_lock(held.clone()).await.expect_err("given back before");
    w.pass(1);
    w.end(run, done()).await;
    w.pass(1);
    w.renew_lock(held, 1).await.expect_err("given back before");
    let verbs = async |limit| -> Vec<String> {
        w.refusals(limit).await.expect("read").into_iter().map(|refused| refused.verb).collect()
    };
    assert_eq!(verbs(10).await, ["renew_lock", "finish", "release_lock"]);
    assert_eq!(verbs(2).await, ["renew_lock", "finish"]);
    assert_eq!(verbs(0).await, ["renew_lock"], "at least one");
    assert_eq!(w.totals().await.writes_refused, 3);
}

/// An empty store shows nothing, and counts nothing.
pub async fn an_empty_store_is_empty(h: &dyn Harness) {
    let w = World::new(h);
    let shown = w.snapshot().await;
    assert_eq!((shown.jobs, shown.holders, shown.queues, shown.instances), (vec![], vec![], vec![], vec![]));
    assert_eq!(w.refusals(10).await.expect("read"), []);
    assert_eq!(w.totals().await, crate::model::Counters::default());
    assert_eq!(w.prune(10).await.expect("pruned").total(), 0);
}

/// A store says what it is, and whom it protects; secrets are not in its address.
pub async fn a_store_says_what_it_is(h: &dyn Harness) {
    let w = World::new(h);
    let health = w.health().await.expect("read");
    assert_eq!((health.store, &health.address), (w.name(), &w.address()));
    assert!(!health.engine.is_empty() && health.version > 0, "{health:?}");
    let broken = |setting: &&crate::store::Setting| setting.verdict == crate::store::HealthVerdict::Broken;
    assert_eq!(health.settings.iter().filter(broken).collect::<Vec<_>>(), Vec::<&_>::new(), "set up for tests");
}
