-- of_owner: every run that belongs to an instance.
-- binds: :instance
select id, fence, claim, cancel_requested
  from hapax.jobs
 where state = 'running'
   and owner = :instance
 order by id
