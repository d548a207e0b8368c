-- newest: ids of the newest jobs of the whole store.
-- binds: :before, :limit
select id
  from hapax_jobs
 where id < :before
 order by id desc
 limit :limit
