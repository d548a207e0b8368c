//! HOW IS IT PROVED? One suite for every store: what `store/` promises, case by case.
//!
//! A case is a `pub async fn name(h: &dyn Harness)` in a file of this room. It is listed in
//! [`conformance!`](crate::conformance!), which a store's test file calls once, and which makes one test of each case,
//! so that one failure hides no other. A store that cannot pass a case for a reason that lies in what it is says so in
//! its list of exemptions; nothing is skipped in silence.
//!
//! Cases move the harness's clock and never sleep. They ask for what a store can do, never for its name.
//!
//! Not part of the crate's stable interface.
//!
//! This room does not know: how any store keeps anything, files, networks, or how a store is set up; harnesses do.

mod actors;
pub mod concurrent;
mod hunt;
pub mod inspect;
pub mod jobs;
pub mod keys;
pub mod leases;
pub mod ledger;
pub mod lost_answers;
pub mod once;
pub mod operate;
mod order;
pub mod random;
pub mod releases;
pub mod restart;
pub mod runs;
mod script;
mod show;
pub mod stale;
pub mod takeovers;
mod witness;
pub mod workers;
mod world;

use std::sync::Arc;

use async_trait::async_trait;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::model::Refusal;
use crate::model::observe::{Answer, Command};
use crate::store::Store;
use crate::store::wired::call;

/// One empty store of its own, on a movable clock: what a case is given.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store. Always the same one; a new handle only if that is how it is shared.
    fn store(&self) -> Arc<dyn Store>;

    /// Another handle on the same store, with a connection of its own if it has connections.
    async fn second(&self) -> Arc<dyn Store>;

    /// The clock that the store reads.
    fn clock(&self) -> Clock;

    /// Another harness of the same kind, with an empty store of its own.
    async fn anew(&self) -> Box<dyn Harness>;

    /// Ends the store and opens it again, as a restart of its process would. Nothing if it keeps nothing; such a store
    /// exempts the cases of `restart.rs`.
    async fn reopen(&self) -> Option<Arc<dyn Store>>;
}

/// Asks `store` what `command` says, and tells what the law refused from what went wrong.
///
/// # Errors
/// What went wrong.
pub async fn run(store: &dyn Store, command: &Command) -> Result<Result<Answer, Refusal>, Error> {
    match call(store, command.clone()).await {
        Ok(answer) => Ok(Ok(answer)),
        Err(error) => match error.refusal() {
            Some(refusal) => Ok(Err(refusal.clone())),
            None => Err(error),
        },
    }
}

/// Every case, as `file::name`.
pub const CASES: &[&str] = crate::conformance!(@cases names);

/// Makes one test of each case, for one store:
///
/// ```text
/// hapax::conformance! {
///     harness: MyHarness::new().await,
///     exempt: [("everything_is_there_after_a_restart", "it keeps nothing")],
/// }
/// ```
///
/// `harness` is evaluated anew for each test, inside an async function; it gives a
/// [`Harness`](crate::conformance::Harness). Exempted cases are named with a reason. The caller's crate needs tokio
/// with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! conformance {
    (harness: $harness:expr, exempt: [$(($case:literal, $reason:literal)),* $(,)?] $(,)?) => {
        const EXEMPT: &[(&str, &str)] = &[$(($case, $reason)),*];

        async fn conformance_harness() -> impl $crate::conformance::Harness {
            $harness
        }

        #[test]
        fn exemptions_are_known() {
            for (case, reason) in EXEMPT {
                let known = |name: &&&str| name.split("::").last() == Some(case);
                assert!($crate::conformance::CASES.iter().any(|name| known(&name)), "no case is called {case}");
                assert!(!reason.is_empty(), "{case} is exempted without a reason");
            }
        }

        $crate::conformance!(@cases tests);
    };
    (@tests $($room:ident :: $case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                if let Some((_, reason)) = EXEMPT.iter().find(|(name, _)| *name == stringify!($case)) {
                    println!("exempted: {reason}");
                    return;
                }
                $crate::conformance::$room::$case(&conformance_harness().await).await;
            }
        )*
    };
    (@names $($room:ident :: $case:ident,)*) => {
        &[$(concat!(stringify!($room), "::", stringify!($case))),*]
    };
    (@cases $then:ident) => {
        $crate::conformance! { @$then
            concurrent::concurrent_commands_have_an_order,
            inspect::pages_cover_everything_exactly_once,
            inspect::filters_narrow_a_list,
            inspect::a_page_has_its_limits,
            inspect::queues_show_their_counts,
            inspect::a_queue_without_anything_is_not_shown,
            inspect::counts_stop_at_their_limit,
            inspect::refusals_are_shown_newest_first,
            inspect::an_empty_store_is_empty,
            inspect::a_store_says_what_it_is,
            jobs::enqueue_twice_with_one_id_is_one_job,
            jobs::enqueue_again_does_not_wind_a_job_back,
            jobs::enqueue_answers_each_job_for_itself,
            jobs::a_thousand_jobs_in_one_call,
            jobs::an_empty_enqueue_is_no_fault,
            jobs::every_field_of_a_job_is_kept,
            jobs::payloads_are_kept_byte_for_byte,
            jobs::names_are_told_apart_byte_by_byte,
            jobs::the_ends_of_numbers_are_kept,
            jobs::nobody_claims_before_the_due_time,
            jobs::due_times_follow_the_wall_clock,
            jobs::the_order_is_priority_due_time_id,
            jobs::the_order_holds_for_jobs_that_come_back,
            jobs::each_queue_has_its_own_limit,
            jobs::a_queue_named_twice_gives_no_job_twice,
            jobs::unknown_kinds_stay_ready_and_are_shown,
            jobs::a_repeated_claim_gives_the_same_jobs,
            jobs::two_claims_never_share_a_job,
            jobs::fences_of_claims_grow,
            jobs::a_claim_of_one_who_is_not_live_is_refused,
            jobs::a_flood_of_due_jobs_is_made_ready_in_bites,
            jobs::a_peek_never_lets_work_lie,
            keys::a_key_is_held_while_its_job_lives,
            keys::a_done_key_outlives_its_job,
            keys::a_key_is_free_when_its_job_goes_without_effect,
            keys::a_killed_owner_leaves_no_key_behind,
            keys::a_doubt_found_done_keeps_the_key,
            keys::a_retried_job_takes_its_key_again,
            keys::a_retried_job_takes_a_forgotten_key_anew,
            keys::other_work_under_the_same_key_is_an_error,
            keys::an_old_message_makes_no_job,
            keys::keys_of_jobs_are_told_apart,
            keys::a_key_may_serve_one_job_after_the_other,
            leases::a_held_lock_is_busy,
            leases::a_repeated_wish_finds_its_grant,
            leases::a_lock_passes_on_at_the_end_of_its_lease,
            leases::a_renewal_keeps_the_fence,
            leases::fences_of_a_lock_grow,
            leases::a_released_lock_is_free_at_once,
            leases::permits_are_counted,
            leases::the_smallest_number_of_permits_counts,
            leases::lock_names_are_told_apart,
            leases::a_set_wall_clock_moves_no_lease,
            leases::handles_share_the_locks,
            leases::an_acquisition_counts_within_its_name,
            leases::abandoned_locks_are_forgotten_in_the_end,
            lost_answers::a_lost_enqueue_is_repeated,
            lost_answers::a_lost_claim_is_repeated,
            lost_answers::a_lost_claim_is_given_back,
            lost_answers::a_lost_suspect_is_found_by_the_heartbeat,
            lost_answers::a_lost_start_is_repeated,
            lost_answers::a_lost_finish_is_settled_by_the_ledger,
            lost_answers::a_lost_release_is_settled_by_the_heartbeat,
            lost_answers::a_lost_release_of_a_claim_is_repeated,
            lost_answers::lost_progress_is_repeated,
            lost_answers::lost_duties_are_repeated,
            lost_answers::a_lost_grant_is_found_again,
            lost_answers::a_lost_release_of_a_lock_is_settled_by_looking,
            lost_answers::lost_steps_of_a_key_are_repeated,
            lost_answers::lost_words_of_operators_are_said_again,
            lost_answers::what_was_not_sent_did_not_happen,
            lost_answers::a_bad_line_loses_and_doubles_nothing,
            ledger::bare_keys_are_listed_by_value,
            ledger::a_key_is_forgotten_only_when_nobody_works_on_it,
            ledger::a_key_is_resolved_by_a_persons_word,
            ledger::a_later_result_replaces_the_kept_one,
            ledger::a_broken_lock_is_free_and_its_holder_refused,
            ledger::the_store_tells_its_wall_clock,
            once::a_held_key_is_busy,
            once::done_is_refused_until_its_retention_ends,
            once::failed_work_frees_the_key_at_once,
            once::a_key_passes_on_at_the_end_of_its_lease,
            once::a_renewed_key_stays_held,
            once::late_work_that_nobody_took_over_may_end,
            once::late_work_that_another_took_over_is_refused,
            once::the_same_end_twice_is_no_fault,
            once::another_fingerprint_is_an_error,
            once::an_old_message_is_quarantined,
            once::keys_are_told_apart,
            once::a_key_is_one_key_whoever_asks,
            once::keys_are_pruned_when_nobody_can_need_them,
            operate::every_state_allows_what_the_table_says,
            operate::an_unknown_job_is_not_found,
            operate::a_cancel_leaves_its_reason,
            operate::a_retry_gives_all_attempts_back,
            operate::a_retry_brings_a_scheduled_job_forward,
            operate::a_parked_job_waits,
            operate::a_decision_settles_a_doubt,
            operate::a_paused_queue_gives_nothing,
            operate::a_queue_is_resumed_once,
            operate::a_suspect_of_a_paused_queue_waits,
            random::random_commands_are_answered_by_the_law,
            releases::a_released_run_goes_back_untouched,
            releases::a_claim_is_given_back_as_a_whole,
            releases::another_instance_cannot_give_a_claim_back,
            releases::a_run_named_twice_is_released_once,
            releases::a_heartbeat_finds_what_a_lost_answer_left,
            releases::a_current_done_wins_over_a_cancel,
            releases::every_other_end_of_a_cancelled_run_is_cancelled,
            releases::a_cancelled_run_never_comes_back,
            releases::a_cancel_does_not_settle_a_doubt,
            restart::everything_is_there_after_a_restart,
            restart::a_run_goes_on_over_a_restart,
            restart::fences_grow_over_restarts,
            restart::leases_outlast_a_restart,
            runs::a_claim_says_who_runs_the_job,
            runs::a_start_is_recorded_once,
            runs::done_is_recorded_with_its_result,
            runs::done_is_final,
            runs::a_failed_run_comes_back_after_its_delay,
            runs::a_failed_run_without_delay_is_ready_at_once,
            runs::the_last_attempt_parks,
            runs::a_policy_of_one_attempt_parks_at_once,
            runs::a_snooze_is_no_failure,
            runs::an_unclear_end_is_in_doubt_only_at_most_once,
            runs::a_task_may_park_or_cancel_its_job,
            runs::delays_reach_the_end_of_time_and_no_further,
            runs::any_text_closes_a_job,
            runs::the_newest_runs_are_kept,
            runs::each_finish_of_a_call_is_judged_for_itself,
            runs::progress_belongs_to_its_run,
            runs::the_ledger_tells_what_became_of_a_run,
            runs::a_late_run_that_nobody_replaced_may_end,
            stale::a_stale_start_is_refused,
            stale::a_stale_finish_is_refused_whatever_its_end,
            stale::a_stale_release_is_refused,
            stale::stale_progress_is_refused,
            stale::a_fence_that_was_never_given_is_refused,
            stale::a_heartbeat_starts_no_run_of_another,
            stale::a_heartbeat_of_the_dead_is_refused,
            stale::a_reap_of_one_who_is_not_live_is_refused,
            stale::a_stale_renewal_of_a_lock_is_refused,
            stale::a_stale_release_of_a_lock_is_refused,
            stale::a_stale_renewal_of_a_key_is_refused,
            stale::a_stale_finish_of_a_key_is_refused,
            stale::a_lease_that_ran_out_is_not_renewed,
            takeovers::the_sweep_leaves_finished_jobs_alone,
            takeovers::the_sweep_leaves_the_successor_alone,
            takeovers::the_late_run_is_told_and_refused,
            takeovers::a_live_owner_keeps_its_runs,
            takeovers::expired_but_not_dead_is_renewed,
            takeovers::after_a_stall_nobody_is_taken_for_dead,
            takeovers::unstarted_runs_go_back_untouched,
            takeovers::started_runs_make_a_suspect,
            takeovers::a_suspect_is_claimed_alone,
            takeovers::takeovers_without_end_park_the_job,
            takeovers::a_policy_of_one_attempt_allows_no_takeover,
            takeovers::a_lost_run_is_in_doubt_at_most_once,
            takeovers::a_live_instance_loses_a_run_past_its_deadline,
            takeovers::a_deadline_is_a_doubt_at_most_once,
            takeovers::a_run_that_hangs_unseen_is_found_out,
            takeovers::who_leaves_gives_its_runs_back,
            takeovers::bites_of_the_reaper_reach_everything,
            takeovers::a_set_wall_clock_kills_nobody,
            takeovers::one_crashing_payload_parks_alone,
            workers::a_registered_instance_is_shown,
            workers::registering_again_renews,
            workers::a_new_instance_waits_before_it_reaps,
            workers::dead_is_final,
            workers::a_heartbeat_renews_and_tells,
            workers::a_heartbeat_records_starts,
            workers::a_heartbeat_carries_many_runs,
            workers::the_pruner_keeps_what_is_not_over,
            workers::ended_jobs_go_after_their_retention,
            workers::an_ended_job_is_kept_for_a_repeated_enqueue,
            workers::a_retried_job_is_not_pruned,
            workers::evidence_goes_after_its_time,
            workers::bites_of_the_pruner_reach_everything,
        }
    };
}
