-- purge: deletes ended jobs whose retention has passed, the longest past first.
-- binds: :now, :limit
-- guard: state
-- set: PRUNABLE
-- differs from sqlite: locks what it picks
delete from hapax.jobs
 where key in (
        select key
          from hapax.jobs
         where purge_at <= :now
         order by purge_at, id
         limit :limit
           for update skip locked)
   and state in ('done', 'cancelled')
returning id
