-- running: how many runs belong to an instance.
-- binds: :instance
select count(*)
  from hapax.jobs
 where state = 'running'
   and owner = :instance
