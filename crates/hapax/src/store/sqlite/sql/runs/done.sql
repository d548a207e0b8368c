-- done: ends the current run of a job that took effect, the one end that most runs have; all others go by save.sql.
-- binds: :fence, :result, :wall, :keep_ms_min, :most_ms, :id
-- guard: state, fence
update hapax_jobs
   set state = 'done', ended_fence = :fence,
       owner = null, claim = null, claimed_at = null, started_at = null, deadline = null,
       runs = min(runs + 1, 4294967295), unstarted_takeovers = 0, suspect = 0, cancel_requested = 0,
       result = :result, reason = null, finished_at = :wall,
       purge_at = iif(max(keep_ms, :keep_ms_min) > :most_ms, 9223372036854775807,
                      :wall + max(keep_ms, :keep_ms_min) * 1000)
 where id = :id
   and state = 'running'
   and fence = :fence
returning once_boundary, once_scope, once_value, keep_key_ms
