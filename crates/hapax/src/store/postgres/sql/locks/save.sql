-- save: a renewed lease, or a permit that passed on once its lease was over.
-- binds: :permits, :fence, :acquisition, :holder, :since, :lease_until, :name, :slot, :was_fence
-- guard: fence
update hapax.locks
   set permits = :permits, fence = :fence, acquisition = :acquisition, holder = :holder,
       since = :since, lease_until = :lease_until
 where name = :name
   and slot = :slot
   and fence = :was_fence
