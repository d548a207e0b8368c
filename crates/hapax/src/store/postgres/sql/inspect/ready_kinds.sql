-- ready_kinds: the kinds among the first ready jobs of a queue.
-- binds: :queue, :limit
select kind
  from (select kind
          from hapax.jobs
         where queue = :queue
           and state = 'ready'
           and not suspect
         order by priority, due_at, id
         limit :limit) as first
union
select kind
  from (select kind
          from hapax.jobs
         where queue = :queue
           and state = 'ready'
           and suspect
         order by priority, due_at, id
         limit :limit) as first
