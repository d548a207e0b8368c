-- pick_suspect: the first suspect of a queue, to be claimed alone.
-- binds: :queue, :kinds
-- set: CLAIMABLE
select key
  from hapax_jobs indexed by hapax_jobs_suspect
 where queue = :queue
   and state = 'ready'
   and suspect = 1
   and kind in (select value from json_each(:kinds))
   and not exists (select 1 from hapax_pauses where hapax_pauses.queue = :queue)
 order by priority, due_at, id
 limit 1
