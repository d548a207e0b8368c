-- still_current: whether a fence is still the last one of its permit; a grant to another waits until the commit, a
-- renewal does not.
-- binds: :name, :slot, :fence
-- differs from sqlite: a locking read instead of a write
select true
  from hapax.locks
 where name = :name
   and slot = :slot
   and fence = :fence
   for key share
