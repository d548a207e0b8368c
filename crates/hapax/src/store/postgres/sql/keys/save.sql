-- save: writes back what the law made of a once key.
-- binds: :fingerprint, :state, :job, :holder, :fence, :acquisition, :lease_until, :attempts, :since, :ended_at,
--        :keep_until, :result, :refused, :last_refused_at, :boundary, :scope, :hash, :was_state, :was_fence, :was_job
-- guard: state, fence, job
update hapax.keys
   set fingerprint = :fingerprint, state = :state, job = :job, holder = :holder, fence = :fence,
       acquisition = :acquisition, lease_until = :lease_until, attempts = :attempts, since = :since,
       ended_at = :ended_at, keep_until = :keep_until, result = :result, refused = :refused,
       last_refused_at = :last_refused_at
 where boundary = :boundary
   and scope = :scope
   and hash = :hash
   and state = :was_state
   and fence is not distinct from :was_fence
   and job is not distinct from :was_job
