-- refuse: keeps refused duplicates beside their keys, whose rows stay unlocked: a transaction of the user's may last.
-- binds: :boundaries, :scopes, :hashes, :wall
-- differs from sqlite: has no counterpart there, where the key's row counts them at once
insert into hapax.duplicates (key, at)
select keys.key, :wall
  from unnest(:boundaries::text[], :scopes::text[], :hashes::bytea[]) as refused (boundary, scope, hash)
  join hapax.keys using (boundary, scope, hash)
