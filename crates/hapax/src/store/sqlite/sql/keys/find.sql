-- find: one once key, by the hash of its whole value.
-- binds: :boundary, :scope, :hash
select boundary, scope, value, fingerprint, state, job, holder, fence, acquisition, lease_until,
       attempts, since, ended_at, keep_until, result, refused, last_refused_at
  from hapax_keys
 where boundary = :boundary
   and scope = :scope
   and hash = :hash
