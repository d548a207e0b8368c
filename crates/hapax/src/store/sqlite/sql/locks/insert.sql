-- insert: a permit that nobody had before.
-- binds: :name, :slot, :fence, :acquisition, :holder, :since, :lease_until
insert into hapax_locks (name, slot, fence, acquisition, holder, since, lease_until)
values (:name, :slot, :fence, :acquisition, :holder, :since, :lease_until)
