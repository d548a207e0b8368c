-- ready_kinds: the kinds among the first ready jobs of a queue.
-- binds: :queue, :limit
select kind
  from (select kind
          from hapax_jobs indexed by hapax_jobs_ready
         where queue = :queue
           and state = 'ready'
           and suspect = 0
         order by priority, due_at, id
         limit :limit)
union
select kind
  from (select kind
          from hapax_jobs indexed by hapax_jobs_suspect
         where queue = :queue
           and state = 'ready'
           and suspect = 1
         order by priority, due_at, id
         limit :limit)
