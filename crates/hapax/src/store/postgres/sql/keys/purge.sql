-- purge: forgets keys whose retention has passed. A held key has no end of retention.
-- binds: :now, :limit
-- guard: state
-- differs from sqlite: locks what it picks
delete from hapax.keys
 where key in (
        select key
          from hapax.keys
         where keep_until <= :now
         order by keep_until, key
         limit :limit
           for update skip locked)
   and state <> 'held'
