-- renew: a heartbeat. Nobody has declared the instance dead, so it lives, even if its lease had run out; then the
-- others are given the time of one heartbeat to renew themselves as well before it may reap.
-- binds: :wall, :lease_now, :id
-- guard: live
-- differs from sqlite: a function of the schema keeps the sum in range, so :most_ms is not bound
update hapax.instances
   set renewed_at = :wall,
       reap_from = case when lease_until > :lease_now then reap_from
                        else hapax.plus_ms(:lease_now, lease_ms / 3) end,
       lease_until = hapax.plus_ms(:lease_now, lease_ms)
 where id = :id
   and live
