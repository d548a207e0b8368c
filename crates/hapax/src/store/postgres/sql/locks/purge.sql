-- purge: forgets permits whose lease ran out long ago; what they held is evidence no more.
-- binds: :cutoff, :limit
-- guard: lease_until
-- differs from sqlite: locks what it picks
delete from hapax.locks
 where (name, slot) in (
        select name, slot
          from hapax.locks
         where lease_until <= :cutoff
         limit :limit
           for update skip locked)
   and lease_until <= :cutoff
