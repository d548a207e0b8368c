-- start: records that a run has begun, and counts its deadline from now.
-- binds: :wall, :most_ms, :lease_now, :id, :fence, :owner
-- guard: state, fence
update hapax_jobs
   set started_at = :wall,
       deadline = iif(run_timeout_ms > :most_ms, 9223372036854775807, :lease_now + run_timeout_ms * 1000)
 where id = :id
   and state = 'running'
   and fence = :fence
   and started_at is null
   -- A heartbeat records only the starts of its own instance.
   and (:owner is null or owner = :owner)
