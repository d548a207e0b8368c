-- promote: makes jobs ready whose due time has come, the longest due first.
-- binds: :now, :limit
-- guard: state
update hapax_jobs not indexed
   set state = 'ready'
 where key in (
        select key
          from hapax_jobs indexed by hapax_jobs_scheduled
         where state = 'scheduled'
           and due_at <= :now
         order by due_at, id
         limit :limit)
   and state = 'scheduled'
