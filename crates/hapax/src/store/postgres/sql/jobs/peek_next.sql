-- peek_next: when the next scheduled job of the whole store is due.
-- binds: :now
select min(due_at)
  from hapax.jobs
 where state = 'scheduled'
   and due_at > :now
