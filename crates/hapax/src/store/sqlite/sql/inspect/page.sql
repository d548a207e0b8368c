-- page: ids of the newest jobs of one queue in one state, optionally of one kind.
-- binds: :queue, :state, :before, :kind, :limit
select id
  from hapax_jobs indexed by hapax_jobs_by_state
 where queue = :queue
   and state = :state
   and id < :before
   and (:kind is null or kind = :kind)
 order by id desc
 limit :limit
