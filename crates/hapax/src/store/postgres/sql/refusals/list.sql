-- list: the newest refused writes, newest first.
-- binds: :limit
select at, verb, identity, fence
  from hapax.refusals
 order by key desc
 limit :limit
