-- claim: hands a picked job to an instance under the fence of this claim, and gives the job as it then is.
-- binds: :fence, :instance, :claim, :wall, :most_ms, :lease_now, :key
-- guard: state
-- set: CLAIMABLE
update hapax_jobs
   set state = 'running', fence = :fence, progress = null,
       owner = :instance, claim = :claim, claimed_at = :wall,
       -- The start of a suspect is recorded before it runs.
       started_at = iif(suspect, :wall, null),
       -- A time limit past the end of time ends there, instead of overflowing.
       deadline = iif(run_timeout_ms > :most_ms, 9223372036854775807, :lease_now + run_timeout_ms * 1000)
 where key = :key
   and state in ('ready')
returning
       id, queue, kind, payload, payload_version, priority, state, due_at, enqueued_at,
       once_boundary, once_scope, once_value, fingerprint, guarantee,
       max_attempts, retry_base_ms, retry_cap_ms, retry_jitter_percent, run_timeout_ms, keep_ms, keep_key_ms,
       fence, ended_fence, owner, claim, claimed_at, started_at, deadline,
       runs, failures, takeovers, unstarted_takeovers, suspect, cancel_requested,
       progress, result, reason, finished_at, purge_at, refused
