-- purge: forgets keys whose retention has passed. A held key has no end of retention.
-- binds: :now, :limit
-- guard: state
delete from hapax_keys not indexed
 where key in (
        select key
          from hapax_keys indexed by hapax_keys_purge
         where keep_until <= :now
         order by keep_until, key
         limit :limit)
   and state <> 'held'
