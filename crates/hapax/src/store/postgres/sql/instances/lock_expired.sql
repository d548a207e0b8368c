-- lock_expired: instances whose lease has run out; one that is just claiming or renewing is passed over.
-- binds: :lease_now
-- differs from sqlite: has no counterpart there, where the file itself is locked
select id
  from hapax.instances
 where live
   and lease_until <= :lease_now
 order by id
   for update skip locked
