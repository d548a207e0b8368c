-- renew: a heartbeat. Nobody has declared the instance dead, so it lives, even if its lease had run out; then the
-- others are given the time of one heartbeat to renew themselves as well before it may reap.
-- binds: :wall, :lease_now, :most_ms, :id
-- guard: live
update hapax_instances
   set renewed_at = :wall,
       reap_from = case when lease_until > :lease_now then reap_from
                        when lease_ms / 3 > :most_ms then 9223372036854775807
                        else :lease_now + lease_ms / 3 * 1000 end,
       lease_until = iif(lease_ms > :most_ms, 9223372036854775807, :lease_now + lease_ms * 1000)
 where id = :id
   and live = 1
