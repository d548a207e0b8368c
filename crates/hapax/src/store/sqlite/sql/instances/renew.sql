-- renew: a heartbeat. Nobody has declared the instance dead, so it lives, even if its lease had run out.
-- binds: :wall, :most_ms, :lease_now, :id
-- guard: live
update hapax_instances
   set renewed_at = :wall,
       lease_until = iif(lease_ms > :most_ms, 9223372036854775807, :lease_now + lease_ms * 1000)
 where id = :id
   and live = 1
