-- still_current: whether a fence is still the last one of its permit, as a write, so that it stays so until the commit.
-- binds: :name, :slot, :fence
-- guard: fence
update hapax_locks
   set fence = fence
 where name = :name
   and slot = :slot
   and fence = :fence
