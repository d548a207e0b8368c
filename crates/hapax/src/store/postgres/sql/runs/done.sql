-- done: ends current runs of jobs that took effect, the one end that most runs have; all others go by save.sql.
-- binds: :ids, :wall, :keep_ms_min, :fences, :results
-- guard: state, fence
-- differs from sqlite: many runs in one statement
with locked as (
    -- In the order of ids, as everywhere, so that no two wait for each other.
    select id
      from hapax.jobs
     where id = any(:ids::uuid[])
     order by id
       for no key update)
update hapax.jobs
   set state = 'done', ended_fence = asked.fence,
       owner = null, claim = null, claimed_at = null, started_at = null, deadline = null,
       runs = least(jobs.runs + 1, 4294967295), unstarted_takeovers = 0, suspect = false, cancel_requested = false,
       result = asked.result, reason = null, finished_at = :wall,
       purge_at = hapax.plus_ms(:wall, greatest(keep_ms, :keep_ms_min))
  from unnest(:ids::uuid[], :fences::bigint[], :results::text[]) as asked (id, fence, result)
       join locked using (id)
 where jobs.id = asked.id
   and jobs.state = 'running'
   and jobs.fence = asked.fence
returning jobs.id, jobs.fence, jobs.once_boundary, jobs.once_scope, jobs.once_value, jobs.keep_key_ms
