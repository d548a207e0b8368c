-- start: records that runs have begun, and counts their deadlines from now.
-- binds: :ids, :wall, :lease_now, :fences, :owner
-- guard: state, fence
-- differs from sqlite: many runs in one statement; gives those that it recorded
with locked as (
    -- A heartbeat waits for nobody: a row that somebody holds is passed over, and its start recorded with the next.
    select id
      from hapax.jobs
     where id = any(:ids::uuid[])
     order by id
       for no key update skip locked)
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
