-- start: records that runs have begun, and counts their deadlines from now.
-- binds: :wall, :lease_now, :ids, :fences, :owner
-- guard: state, fence
-- differs from sqlite: many runs in one statement; gives those that it recorded
update hapax.jobs
   set started_at = :wall,
       deadline = hapax.plus_ms(:lease_now, run_timeout_ms)
  from unnest(:ids::uuid[], :fences::bigint[]) as asked (id, fence)
 where jobs.id = asked.id
   and jobs.state = 'running'
   and jobs.fence = asked.fence
   and jobs.started_at is null
   -- A heartbeat records only the starts of its own instance.
   and (:owner::uuid is null or jobs.owner = :owner)
returning jobs.id, jobs.fence
