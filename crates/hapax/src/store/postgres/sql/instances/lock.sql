-- lock: one instance, which nobody else changes until this transaction ends.
-- binds: :id
-- differs from sqlite: has no counterpart there, where the file itself is locked
select id, name, version, queues, kinds, lease_ms, live, started_at, renewed_at, lease_until, reap_from
  from hapax.instances
 where id = :id
   for update
