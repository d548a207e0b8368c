-- purge: deletes ended jobs whose retention has passed, the longest past first.
-- binds: :now, :limit
-- guard: state
-- set: PRUNABLE
delete from hapax_jobs not indexed
 where key in (
        select key
          from hapax_jobs indexed by hapax_jobs_purge
         where purge_at <= :now
         order by purge_at, id
         limit :limit)
   and state in ('done', 'cancelled')
returning id
