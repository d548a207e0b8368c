-- promote: makes jobs ready whose due time has come, the longest due first; another may be at it too.
-- binds: :now, :limit
-- guard: state
-- differs from sqlite: locks what it picks
update hapax.jobs
   set state = 'ready'
 where key in (
        select key
          from hapax.jobs
         where state = 'scheduled'
           and due_at <= :now
         order by due_at, id
         limit :limit
           for update skip locked)
   and state = 'scheduled'
