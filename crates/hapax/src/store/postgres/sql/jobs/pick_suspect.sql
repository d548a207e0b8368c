-- pick_suspect: the first suspect of a queue, to be claimed alone.
-- binds: :queue, :kinds
-- set: CLAIMABLE
-- differs from sqlite: locks what it picks
select key
  from hapax.jobs
 where queue = :queue
   and state = 'ready'
   and suspect
   and kind = any(:kinds::text[])
   and not exists (select 1 from hapax.pauses where pauses.queue = :queue)
 order by priority, due_at, id
 limit 1
   for update skip locked
