-- peek_due: whether a job of these queues and kinds is due that no claim has made ready yet. Looks at the first of those
-- that are due; if there are more, a claim is worth it, since it makes them ready.
-- binds: :queues, :kinds, :now
-- differs from sqlite: looks no further than a claim would get
select count(*) >= 1000
       or coalesce(bool_or(queue = any(:queues::text[])
                           and kind = any(:kinds::text[])
                           and queue not in (select pauses.queue from hapax.pauses)), false)
  from (select queue, kind
          from hapax.jobs
         where state = 'scheduled'
           and due_at <= :now
         order by due_at, id
         limit 1000) as due
