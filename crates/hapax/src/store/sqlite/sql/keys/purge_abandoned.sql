-- purge_abandoned: forgets bare claims whose lease ran out long ago and that nobody took over.
-- binds: :cutoff, :limit
-- guard: state, lease_until
delete from hapax_keys
 where key in (
        select key
          from hapax_keys
         where state = 'held'
           and lease_until <= :cutoff
         limit :limit)
   and state = 'held'
   and lease_until <= :cutoff
