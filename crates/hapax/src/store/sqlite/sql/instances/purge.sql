-- purge: forgets dead instances of which nothing has been heard for long and nothing is left.
-- binds: :cutoff, :limit
-- guard: live
delete from hapax_instances
 where id in (
        select id
          from hapax_instances
         where live = 0
           and renewed_at <= :cutoff
           and not exists (select 1 from hapax_jobs where state = 'running' and owner = hapax_instances.id)
         order by id
         limit :limit)
   and live = 0
