-- of_name: every permit of one lock, those past their lease included.
-- binds: :name
select name, slot, permits, fence, acquisition, holder, since, lease_until
  from hapax.locks
 where name = :name
