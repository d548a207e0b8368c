-- of_job: the ended runs of a job, oldest first.
-- binds: :job
select number, fence, instance, started_at, ended_at, outcome, detail
  from hapax.runs
 where job = :job
 order by number
