-- page: ids of the newest jobs of one queue in one state, optionally of one kind.
-- binds: :queue, :state, :before, :kind, :limit
-- differs from sqlite: no :before means from the newest on
select id
  from hapax.jobs
 where queue = :queue
   and state = :state
   and (:before::uuid is null or id < :before)
   and (:kind::text is null or kind = :kind)
 order by id desc
 limit :limit
