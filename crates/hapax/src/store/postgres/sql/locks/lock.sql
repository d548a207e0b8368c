-- lock: every permit of one lock, those past their lease included; nobody else changes them until this transaction ends.
-- binds: :name
-- differs from sqlite: has no counterpart there, where the file itself is locked
select name, slot, permits, fence, acquisition, holder, since, lease_until
  from hapax.locks
 where name = :name
 order by slot
   for update
