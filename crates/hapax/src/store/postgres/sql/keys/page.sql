-- page: bare once keys of a scope, by value, without those whose retention has passed.
-- binds: :scope, :prefix, :after, :now, :limit
-- differs from sqlite: adds the duplicates that are not folded in yet
select boundary, scope, value, fingerprint, state, job, holder, fence, acquisition, lease_until,
       attempts, since, ended_at, keep_until, result,
       refused + (select count(*) from hapax.duplicates where duplicates.key = keys.key),
       greatest(last_refused_at, (select max(at) from hapax.duplicates where duplicates.key = keys.key))
  from hapax.keys
 where boundary = 'claim'
   and scope = :scope
   and starts_with(value, :prefix)
   and value > :after
   and (keep_until is null or keep_until > :now)
 order by value
 limit :limit
