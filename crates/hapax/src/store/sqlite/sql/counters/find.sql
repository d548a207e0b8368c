-- find: totals since the file was made.
-- binds: none
select duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines
  from hapax_counters
 where one = 1
