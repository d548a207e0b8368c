-- peek_ready: whether a queue that is not paused has a ready job of these kinds, suspects included.
-- binds: :queue, :kinds
select not exists (select 1 from hapax.pauses where pauses.queue = :queue)
   and (exists (
            select 1
              from hapax.jobs
             where queue = :queue
               and state = 'ready'
               and not suspect
               and kind = any(:kinds::text[]))
        or exists (
            select 1
              from hapax.jobs
             where queue = :queue
               and state = 'ready'
               and suspect
               and kind = any(:kinds::text[])))
