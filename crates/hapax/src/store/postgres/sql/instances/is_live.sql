-- is_live: whether an instance may claim, and from when on it may reap; it cannot be declared dead before this transaction ends.
-- binds: :id, :lease_now
-- differs from sqlite: locks the row, yet not against its own heartbeat
select reap_from
  from hapax.instances
 where id = :id
   and live
   and lease_until > :lease_now
   for key share
