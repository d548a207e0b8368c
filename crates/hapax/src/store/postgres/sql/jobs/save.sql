-- save: writes back what the law made of a job. What never changes, and what only a claim changes, is not among it.
-- binds: :state, :due_at, :ended_fence, :owner, :claim, :claimed_at, :started_at, :deadline, :runs, :failures,
--        :takeovers, :unstarted_takeovers, :suspect, :cancel_requested, :result, :reason, :finished_at, :purge_at,
--        :refused, :id, :was_state, :was_fence
-- guard: state, fence
update hapax.jobs
   set state = :state, due_at = :due_at, ended_fence = :ended_fence,
       owner = :owner, claim = :claim, claimed_at = :claimed_at, started_at = :started_at, deadline = :deadline,
       runs = :runs, failures = :failures, takeovers = :takeovers, unstarted_takeovers = :unstarted_takeovers,
       suspect = :suspect, cancel_requested = :cancel_requested,
       result = :result, reason = :reason, finished_at = :finished_at, purge_at = :purge_at, refused = :refused
 where id = :id
   and state = :was_state
   and fence is not distinct from :was_fence
