-- find: once keys, by the hashes of their whole values.
-- binds: :boundaries, :scopes, :hashes
-- differs from sqlite: many keys in one statement; adds the duplicates that are not folded in yet
select boundary, scope, value, fingerprint, state, job, holder, fence, acquisition, lease_until,
       attempts, since, ended_at, keep_until, result,
       refused + (select count(*) from hapax.duplicates where duplicates.key = keys.key),
       greatest(last_refused_at, (select max(at) from hapax.duplicates where duplicates.key = keys.key))
  from hapax.keys
 where (boundary, scope, hash) in (
        select * from unnest(:boundaries::text[], :scopes::text[], :hashes::bytea[]))
