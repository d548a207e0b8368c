-- of_owner: every run that belongs to an instance.
-- binds: :instance
-- differs from sqlite: sorts apart, since while the planner believes that the table is empty it would read all jobs in the
--   order of their ids
with mine as materialized (
    select id, fence, claim, cancel_requested
      from hapax.jobs
     where state = 'running'
       and owner = :instance)
select id, fence, claim, cancel_requested
  from mine
 order by id
