-- find: one instance.
-- binds: :id
-- differs from postgres: is lock.sql there
select id, name, version, queues, kinds, lease_ms, live, started_at, renewed_at, lease_until, reap_from
  from hapax_instances
 where id = :id
