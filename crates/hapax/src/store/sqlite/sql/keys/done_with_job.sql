-- done_with_job: the key of a job that took effect is refused from now on, until its retention ends.
-- binds: :wall, :keep_until, :boundary, :scope, :hash, :job
-- guard: job
update hapax_keys
   set state = 'done', ended_at = :wall, keep_until = :keep_until
 where boundary = :boundary
   and scope = :scope
   and hash = :hash
   and job = :job
