-- running: how many runs belong to an instance.
-- binds: :instance
select count(*)
  from hapax_jobs indexed by hapax_jobs_running
 where state = 'running'
   and owner = :instance
