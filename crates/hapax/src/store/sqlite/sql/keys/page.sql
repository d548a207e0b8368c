-- page: bare once keys of a scope, by value, without those whose retention has passed.
-- binds: :scope, :prefix, :after, :now, :limit
select boundary, scope, value, fingerprint, state, job, holder, fence, acquisition, lease_until,
       attempts, since, ended_at, keep_until, result, refused, last_refused_at
  from hapax_keys
 where boundary = 'claim'
   and scope = :scope
   and substr(value, 1, length(:prefix)) = :prefix
   and value > :after
   and (keep_until is null or keep_until > :now)
 order by value
 limit :limit
