-- lock_to_release: one permit of a lock, which nobody else changes until this transaction ends.
-- binds: :name, :slot
-- differs from sqlite: has no counterpart there, where the file itself is locked
select name, slot, permits, fence, acquisition, holder, since, lease_until
  from hapax.locks
 where name = :name
   and slot = :slot
   for update
