-- save: writes back what the law made of an instance. Dead is final.
-- binds: :name, :version, :queues, :kinds, :lease_ms, :live, :renewed_at, :lease_until, :reap_from, :id
-- guard: live
update hapax.instances
   set name = :name, version = :version, queues = :queues, kinds = :kinds, lease_ms = :lease_ms,
       live = :live, renewed_at = :renewed_at, lease_until = :lease_until, reap_from = :reap_from
 where id = :id
   and live
