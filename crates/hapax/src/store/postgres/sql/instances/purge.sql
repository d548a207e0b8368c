-- purge: forgets dead instances of which nothing has been heard for long and nothing is left.
-- binds: :cutoff, :limit
-- guard: live
-- differs from sqlite: locks what it picks
delete from hapax.instances
 where id in (
        select id
          from hapax.instances
         where not live
           and renewed_at <= :cutoff
           and not exists (select 1 from hapax.jobs where jobs.state = 'running' and jobs.owner = instances.id)
         order by id
         limit :limit
           for update skip locked)
   and not live
