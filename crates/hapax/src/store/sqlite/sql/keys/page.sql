-- page: bare once keys of a scope, by value, without those whose retention has passed. Those with a prefix lie beside
--   each other; the byte FF stands in no text, so that none of them is above the prefix with FF behind it.
-- binds: :scope, :prefix, :after, :now, :limit
select boundary, scope, value, fingerprint, state, job, holder, fence, acquisition, lease_until,
       attempts, since, ended_at, keep_until, result, refused, last_refused_at
  from hapax_keys indexed by hapax_keys_by_value
 where boundary = 'claim'
   and scope = :scope
   and value >= max(:prefix, :after)
   and value < :prefix || cast(x'ffff' as text)
   and value <> :after
   and (keep_until is null or keep_until > :now)
 order by value
 limit :limit
