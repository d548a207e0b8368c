-- find: jobs by their ids.
-- binds: :ids
-- differs from sqlite: many jobs in one statement
select id, queue, kind, payload, payload_version, priority, state, due_at, enqueued_at,
       once_boundary, once_scope, once_value, fingerprint, guarantee,
       max_attempts, retry_base_ms, retry_cap_ms, retry_jitter_percent, run_timeout_ms, keep_ms, keep_key_ms,
       fence, ended_fence, owner, claim, claimed_at, started_at, deadline,
       runs, failures, takeovers, unstarted_takeovers, suspect, cancel_requested,
       progress, result, reason, finished_at, purge_at, refused
  from hapax.jobs
 where id = any(:ids::uuid[])
 order by id
