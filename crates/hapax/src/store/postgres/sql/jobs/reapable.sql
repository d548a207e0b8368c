-- reapable: runs whose owner is not live, and runs past their deadline. Locked, so that nothing can finish between this
-- list and what is made of it; a run that is just being finished is passed over, and so are those of an owner who may
-- just be renewing its lease.
-- binds: :lease_now, :expired, :limit
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
               and (lease_until > :lease_now or not (instances.id = any(:expired::uuid[])))))
 order by owner, id
 limit :limit
   for update of jobs skip locked
