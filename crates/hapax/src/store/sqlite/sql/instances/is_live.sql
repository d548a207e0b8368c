-- is_live: whether an instance may claim.
-- binds: :id, :lease_now
select exists (
    select 1
      from hapax_instances
     where id = :id
       and live = 1
       and lease_until > :lease_now)
