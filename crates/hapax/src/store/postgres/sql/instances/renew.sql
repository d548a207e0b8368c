-- renew: a heartbeat. Nobody has declared the instance dead, so it lives, even if its lease had run out.
-- binds: :wall, :lease_now, :id
-- guard: live
update hapax.instances
   set renewed_at = :wall,
       lease_until = hapax.plus_ms(:lease_now, lease_ms)
 where id = :id
   and live
