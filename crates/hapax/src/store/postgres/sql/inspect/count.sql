-- count: how many jobs of a queue are in a state, up to a limit where counting stops.
-- binds: :queue, :state, :limit
select count(*)
  from (select 1
          from hapax.jobs
         where queue = :queue
           and state = :state
         limit :limit) as few
