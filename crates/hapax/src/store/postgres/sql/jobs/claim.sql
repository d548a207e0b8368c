-- claim: hands picked jobs to an instance under the fence of this claim, and gives the jobs as they then are.
-- binds: :fence, :instance, :claim, :wall, :lease_now, :keys
-- guard: state
-- set: CLAIMABLE
-- differs from sqlite: many jobs in one statement, which the pick has locked
update hapax.jobs
   set state = 'running', fence = :fence, progress = null,
       owner = :instance, claim = :claim, claimed_at = :wall,
       -- The start of a suspect is recorded before it runs.
       started_at = case when suspect then :wall::timestamptz end,
       deadline = hapax.plus_ms(:lease_now, run_timeout_ms)
 where key = any(:keys::bigint[])
   -- In a form that no index is read by: the planner takes any while it believes that the table is empty.
   and (state in ('ready')) is true
returning
       id, queue, kind, payload, payload_version, priority, state, due_at, enqueued_at,
       once_boundary, once_scope, once_value, fingerprint, guarantee,
       max_attempts, retry_base_ms, retry_cap_ms, retry_jitter_percent, run_timeout_ms, keep_ms, keep_key_ms,
       fence, ended_fence, owner, claim, claimed_at, started_at, deadline,
       runs, failures, takeovers, unstarted_takeovers, suspect, cancel_requested,
       progress, result, reason, finished_at, purge_at, refused, key
