-- peek_due: whether a job of these queues and kinds is due that no claim has made ready yet.
-- binds: :now, :queues, :kinds
select exists (
    select 1
      from hapax_jobs indexed by hapax_jobs_scheduled
     where state = 'scheduled'
       and due_at <= :now
       and queue in (select value from json_each(:queues))
       and kind in (select value from json_each(:kinds))
       and queue not in (select hapax_pauses.queue from hapax_pauses))
