-- start: records that runs have begun, and counts their deadlines from now.
-- binds: :ids, :wall, :lease_now, :fences, :owner
-- guard: state, fence
-- differs from sqlite: many runs in one statement; gives those that it recorded
with locked as (
    -- In the order of ids, as everywhere, so that no two wait for each other.
    select id
      from hapax.jobs
     where id = any(:ids::uuid[])
     order by id
       for no key update)
update hapax.jobs
   set started_at = :wall,
       deadline = hapax.plus_ms(:lease_now, run_timeout_ms)
  from unnest(:ids::uuid[], :fences::bigint[]) as asked (id, fence)
       join locked using (id)
 where jobs.id = asked.id
   and jobs.state = 'running'
   and jobs.fence = asked.fence
   and jobs.started_at is null
   -- A heartbeat records only the starts of its own instance.
   and (:owner::uuid is null or jobs.owner = :owner)
returning jobs.id, jobs.fence
