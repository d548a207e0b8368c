-- reapable: runs whose owner is not live, and runs past their deadline. Locked, so that nothing can finish between this
-- list and what is made of it; a run that is just being finished is passed over.
-- binds: :lease_now, :limit
-- differs from sqlite: locks what it picks
select id
  from hapax.jobs
 where state = 'running'
   and (deadline <= :lease_now
        or not exists (
            select 1
              from hapax.instances
             where instances.id = jobs.owner
               and live
               and lease_until > :lease_now))
 order by owner, id
 limit :limit
   for update of jobs skip locked
