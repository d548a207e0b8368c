-- lock_expired: the permits of one lock that may pass on; a guard in a transaction of the user's is waited for, and nobody
-- else changes them until this transaction ends.
-- binds: :name, :lease_now
-- differs from sqlite: has no counterpart there, where the file itself is locked
select slot
  from hapax.locks
 where name = :name
   and lease_until <= :lease_now
 order by slot
   for update
