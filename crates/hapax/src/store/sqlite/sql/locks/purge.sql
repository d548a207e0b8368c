-- purge: forgets permits whose lease ran out long ago; what they held is evidence no more.
-- binds: :cutoff, :limit
-- guard: lease_until
delete from hapax_locks
 where (name, slot) in (
        select name, slot
          from hapax_locks
         where lease_until <= :cutoff
         limit :limit)
   and lease_until <= :cutoff
