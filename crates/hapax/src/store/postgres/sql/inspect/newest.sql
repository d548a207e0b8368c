-- newest: ids of the newest jobs of the whole store.
-- binds: :before, :limit
-- differs from sqlite: no :before means from the newest on
select id
  from hapax.jobs
 where (:before::uuid is null or id < :before)
 order by id desc
 limit :limit
