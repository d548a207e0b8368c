-- insert: a permit that nobody had before.
-- binds: :name, :slot, :permits, :fence, :acquisition, :holder, :since, :lease_until
insert into hapax.locks (name, slot, permits, fence, acquisition, holder, since, lease_until)
values (:name, :slot, :permits, :fence, :acquisition, :holder, :since, :lease_until)
