-- purge_abandoned: forgets bare claims whose lease ran out long ago and that nobody took over.
-- binds: :cutoff, :limit
-- guard: state, lease_until
-- differs from sqlite: locks what it picks
delete from hapax.keys
 where key in (
        select key
          from hapax.keys
         where state = 'held'
           and lease_until <= :cutoff
         limit :limit
           for update skip locked)
   and state = 'held'
   and lease_until <= :cutoff
