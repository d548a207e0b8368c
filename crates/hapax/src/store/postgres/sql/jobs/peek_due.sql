-- peek_due: whether a job of these queues and kinds is due that no claim has made ready yet.
-- binds: :now, :queues, :kinds
select exists (
    select 1
      from hapax.jobs
     where state = 'scheduled'
       and due_at <= :now
       and queue = any(:queues::text[])
       and kind = any(:kinds::text[])
       and queue not in (select pauses.queue from hapax.pauses))
