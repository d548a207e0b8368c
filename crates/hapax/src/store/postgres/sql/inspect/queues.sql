-- queues: the queues that have jobs, hopping from one to the next in the index instead of reading every job.
-- binds: none
with recursive names (queue) as (
    select min(queue) from hapax.jobs
    union all
    select (select min(jobs.queue) from hapax.jobs where jobs.queue > names.queue)
      from names
     where names.queue is not null)
select queue
  from names
 where queue is not null
