-- release: a permit is given back.
-- binds: :name, :slot, :was_fence
-- guard: fence
delete from hapax.locks
 where name = :name
   and slot = :slot
   and fence = :was_fence
