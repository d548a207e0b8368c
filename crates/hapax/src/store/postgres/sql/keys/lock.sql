-- lock: once keys, which nobody else changes until this transaction ends. In one order, so that no two wait for each
-- other. The duplicates that were refused meanwhile are folded in.
-- binds: :boundaries, :scopes, :hashes
-- guard: key
-- differs from sqlite: has no counterpart there, where the file itself is locked
with locked as (
    select *
      from hapax.keys
     where (boundary, scope, hash) in (
            select * from unnest(:boundaries::text[], :scopes::text[], :hashes::bytea[]))
     order by boundary, scope, hash
       for update),
gone as (
    delete from hapax.duplicates
     using locked
     where duplicates.key = locked.key
    returning duplicates.key, duplicates.at),
more as (
    select key, count(*) as refused, max(at) as at
      from gone
     group by key),
folded as (
    update hapax.keys
       set refused = keys.refused + more.refused, last_refused_at = greatest(keys.last_refused_at, more.at)
      from more
     where keys.key = more.key)
select boundary, scope, value, fingerprint, state, job, holder, fence, acquisition, lease_until,
       attempts, since, ended_at, keep_until, result,
       locked.refused + coalesce(more.refused, 0), greatest(more.at, last_refused_at)
  from locked
  left join more using (key)
 order by boundary, scope, hash
