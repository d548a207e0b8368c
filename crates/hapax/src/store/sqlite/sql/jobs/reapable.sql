-- reapable: runs whose owner is not live, and runs past their deadline. Read under the write lock, so that nothing can
-- finish between this list and what is made of it.
-- binds: :lease_now, :limit
select id
  from hapax_jobs indexed by hapax_jobs_running
 where state = 'running'
   and (deadline <= :lease_now
        or not exists (
            select 1
              from hapax_instances
             where hapax_instances.id = hapax_jobs.owner
               and live = 1
               and lease_until > :lease_now))
 order by owner, id
 limit :limit
