-- of_owner: every run that belongs to an instance.
-- binds: :instance
select id, fence, claim, cancel_requested
  from hapax_jobs indexed by hapax_jobs_running
 where state = 'running'
   and owner = :instance
 order by id
