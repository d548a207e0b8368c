-- list: every paused queue.
-- binds: none
select queue, reason, since
  from hapax.pauses
 order by queue
