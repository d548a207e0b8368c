-- list: every permit of every lock, those past their lease included.
-- binds: none
select name, slot, permits, fence, acquisition, holder, since, lease_until
  from hapax.locks
