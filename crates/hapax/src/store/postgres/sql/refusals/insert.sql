-- insert: keeps a refused write as evidence.
-- binds: :at, :verb, :identity, :fence
insert into hapax.refusals (at, verb, identity, fence)
values (:at, :verb, :identity, :fence)
