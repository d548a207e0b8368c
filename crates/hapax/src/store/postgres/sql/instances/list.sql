-- list: every instance that is remembered.
-- binds: none
select id, name, version, queues, kinds, lease_ms, live, started_at, renewed_at, lease_until, reap_from
  from hapax.instances
 order by id
