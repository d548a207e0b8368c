-- hold_places: keys that are not known get a row that says just that (free, forgotten long ago), so that there is
-- something to lock: whoever wants the same key waits for this transaction.
-- binds: :boundaries, :scopes, :hashes, :values
-- guard: none, because a key that is known stays as it is
-- differs from sqlite: has no counterpart there, where the file itself is locked
insert into hapax.keys (boundary, scope, hash, value, state, job, attempts, since, keep_until, refused)
select boundary, scope, hash, value, 'free', uuid_nil.id, 0, '-infinity', '-infinity', 0
  from unnest(:boundaries::text[], :scopes::text[], :hashes::bytea[], :values::text[])
    as wanted (boundary, scope, hash, value),
       (select '00000000-0000-0000-0000-000000000000'::uuid) as uuid_nil (id)
 order by boundary collate "C", scope collate "C", hash
on conflict (boundary, scope, hash) do nothing
returning boundary, scope, hash
