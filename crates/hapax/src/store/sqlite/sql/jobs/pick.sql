-- pick: ready jobs of a queue in the order of their claims. No lock is needed: the transaction holds the file's.
-- binds: :queue, :kinds, :limit
-- set: CLAIMABLE
select key
  from hapax_jobs indexed by hapax_jobs_ready
 where queue = :queue
   and state = 'ready'
   and suspect = 0
   and kind in (select value from json_each(:kinds))
   and not exists (select 1 from hapax_pauses where hapax_pauses.queue = :queue)
 order by priority, due_at, id
 limit :limit
