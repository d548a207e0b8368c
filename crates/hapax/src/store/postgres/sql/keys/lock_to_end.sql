-- lock_to_end: once keys of jobs that just took effect. In one order, so that no two wait for each other.
-- binds: :boundaries, :scopes, :hashes
-- differs from sqlite: has no counterpart there, where the file itself is locked
select key
  from hapax.keys
 where (boundary, scope, hash) in (
        select * from unnest(:boundaries::text[], :scopes::text[], :hashes::bytea[]))
 order by boundary, scope, hash
   for no key update
