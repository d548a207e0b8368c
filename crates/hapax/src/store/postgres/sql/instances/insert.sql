-- insert: an instance registers.
-- binds: :id, :name, :version, :queues, :kinds, :lease_ms, :live, :started_at, :renewed_at, :lease_until
insert into hapax.instances (id, name, version, queues, kinds, lease_ms, live, started_at, renewed_at, lease_until)
values (:id, :name, :version, :queues, :kinds, :lease_ms, :live, :started_at, :renewed_at, :lease_until)
