-- lock_to_renew: one permit of a lock; a guard in a transaction of the user's does not hold up a renewal.
-- binds: :name, :slot
-- differs from sqlite: has no counterpart there, where the file itself is locked
select name, slot, permits, fence, acquisition, holder, since, lease_until
  from hapax.locks
 where name = :name
   and slot = :slot
   for no key update
