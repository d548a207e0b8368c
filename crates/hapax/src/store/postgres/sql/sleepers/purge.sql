-- purge: forgets listeners that are gone.
-- binds: none
-- guard: none, because a listener that lives says so again
-- differs from sqlite: has no counterpart there, where nobody is told
delete from hapax.sleepers
 where since < clock_timestamp() - interval '1 hour'
