-- purge: forgets old evidence, in the order in which it came.
-- binds: :cutoff, :limit
-- guard: none, because evidence is a record that nobody writes to
delete from hapax_refusals not indexed
 where key in (
        select key
          from hapax_refusals indexed by hapax_refusals_at
         where at <= :cutoff
         order by key
         limit :limit)
