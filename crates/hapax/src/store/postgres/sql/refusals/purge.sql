-- purge: forgets old evidence, in the order in which it came.
-- binds: :cutoff, :limit
-- guard: none, because evidence is a record that nobody writes to
-- differs from sqlite: locks what it picks
delete from hapax.refusals
 where key in (
        select key
          from hapax.refusals
         where at <= :cutoff
         order by key
         limit :limit
           for update skip locked)
