-- queues: the queues that have jobs, hopping from one to the next in the index instead of reading every job.
-- binds: none
with recursive names (queue) as (
    select min(queue) from hapax_jobs
    union all
    select (select min(hapax_jobs.queue) from hapax_jobs where hapax_jobs.queue > names.queue)
      from names
     where names.queue is not null)
select queue
  from names
 where queue is not null
