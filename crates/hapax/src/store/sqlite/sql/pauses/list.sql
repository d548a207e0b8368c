-- list: every paused queue.
-- binds: none
select queue, reason, since
  from hapax_pauses
 order by queue
