-- insert: an instance registers.
-- binds: :id, :name, :version, :queues, :kinds, :lease_ms, :live, :started_at, :renewed_at, :lease_until, :reap_from
insert into hapax.instances (id, name, version, queues, kinds, lease_ms, live, started_at, renewed_at, lease_until,
       reap_from)
values (:id, :name, :version, :queues, :kinds, :lease_ms, :live, :started_at, :renewed_at, :lease_until, :reap_from)
