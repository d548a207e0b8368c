-- peek_ready: whether a queue that is not paused has a ready job of these kinds, suspects included.
-- binds: :queue, :kinds
select not exists (select 1 from hapax_pauses where hapax_pauses.queue = :queue)
   and (exists (
            select 1
              from hapax_jobs indexed by hapax_jobs_ready
             where queue = :queue
               and state = 'ready'
               and suspect = 0
               and kind in (select value from json_each(:kinds)))
        or exists (
            select 1
              from hapax_jobs indexed by hapax_jobs_suspect
             where queue = :queue
               and state = 'ready'
               and suspect = 1
               and kind in (select value from json_each(:kinds))))
