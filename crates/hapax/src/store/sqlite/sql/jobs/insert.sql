-- insert: takes a job as the law made it.
-- binds: :id, :queue, :kind, :payload_version, :priority, :state, :due_at, :enqueued_at, :once_boundary, :once_scope,
--        :once_value, :fingerprint, :guarantee, :max_attempts, :retry_base_ms, :retry_cap_ms, :retry_jitter_percent,
--        :run_timeout_ms, :keep_ms, :keep_key_ms, :payload
-- guard: none, because an id that is there already is the same job, sent again
insert into hapax_jobs (
    id, queue, kind, payload_version, priority, state, due_at, enqueued_at,
    once_boundary, once_scope, once_value, fingerprint, guarantee,
    max_attempts, retry_base_ms, retry_cap_ms, retry_jitter_percent, run_timeout_ms, keep_ms, keep_key_ms, payload)
values (
    :id, :queue, :kind, :payload_version, :priority, :state, :due_at, :enqueued_at,
    :once_boundary, :once_scope, :once_value, :fingerprint, :guarantee,
    :max_attempts, :retry_base_ms, :retry_cap_ms, :retry_jitter_percent, :run_timeout_ms, :keep_ms, :keep_key_ms,
    :payload)
on conflict (id) do nothing
