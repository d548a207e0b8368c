-- peek_next: when the next scheduled job of the whole store is due.
-- binds: :now
select min(due_at)
  from hapax_jobs indexed by hapax_jobs_scheduled
 where state = 'scheduled'
   and due_at > :now
