-- of_name: every permit of one lock, those past their lease included.
-- binds: :name
select name, slot, fence, acquisition, holder, since, lease_until
  from hapax_locks
 where name = :name
