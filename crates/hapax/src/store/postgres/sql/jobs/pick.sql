-- pick: ready jobs of a queue in the order of their claims, but those that another is just claiming.
-- binds: :queue, :kinds, :limit
-- set: CLAIMABLE
-- differs from sqlite: locks what it picks
select key
  from hapax.jobs
 where queue = :queue
   and state = 'ready'
   and not suspect
   and kind = any(:kinds::text[])
   and not exists (select 1 from hapax.pauses where pauses.queue = :queue)
 order by priority, due_at, id
 limit :limit
   for update skip locked
