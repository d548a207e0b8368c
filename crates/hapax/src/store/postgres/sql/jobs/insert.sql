-- insert: takes jobs as the law made them.
-- binds: :id, :queue, :kind, :payload_version, :priority, :state, :due_at, :enqueued_at, :once_boundary, :once_scope,
--        :once_value, :fingerprint, :guarantee, :max_attempts, :retry_base_ms, :retry_cap_ms, :retry_jitter_percent,
--        :run_timeout_ms, :keep_ms, :keep_key_ms, :payload
-- guard: none, because an id that is there already is the same job, sent again
-- differs from sqlite: many jobs in one statement
insert into hapax.jobs (
    id, queue, kind, payload_version, priority, state, due_at, enqueued_at,
    once_boundary, once_scope, once_value, fingerprint, guarantee,
    max_attempts, retry_base_ms, retry_cap_ms, retry_jitter_percent, run_timeout_ms, keep_ms, keep_key_ms, payload)
select *
  from unnest(
    :id::uuid[], :queue::text[], :kind::text[], :payload_version::integer[], :priority::smallint[], :state::text[],
    :due_at::timestamptz[], :enqueued_at::timestamptz[],
    :once_boundary::text[], :once_scope::text[], :once_value::text[], :fingerprint::bytea[], :guarantee::text[],
    :max_attempts::bigint[], :retry_base_ms::bigint[], :retry_cap_ms::bigint[], :retry_jitter_percent::smallint[],
    :run_timeout_ms::bigint[], :keep_ms::bigint[], :keep_key_ms::bigint[], :payload::text[])
on conflict (id) do nothing
