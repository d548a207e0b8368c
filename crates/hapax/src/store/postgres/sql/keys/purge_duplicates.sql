-- purge_duplicates: forgets refused duplicates whose key is gone.
-- binds: none
-- guard: none, because nobody asks for them any more
-- differs from sqlite: has no counterpart there, where the key's row counts them at once
delete from hapax.duplicates
 where not exists (select 1 from hapax.keys where keys.key = duplicates.key)
