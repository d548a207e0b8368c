-- is_live: whether an instance may claim and reap.
-- binds: :id, :lease_now
select exists (
    select 1
      from hapax_instances
     where id = :id
       and live = 1
       and lease_until > :lease_now)
