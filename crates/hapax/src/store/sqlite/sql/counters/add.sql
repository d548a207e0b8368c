-- add: what one step adds to the totals.
-- binds: :duplicates_refused, :writes_refused, :takeovers, :unstarted_takeovers, :deadlines
-- guard: none, because it only adds
update hapax_counters
   set duplicates_refused = duplicates_refused + :duplicates_refused,
       writes_refused = writes_refused + :writes_refused,
       takeovers = takeovers + :takeovers,
       unstarted_takeovers = unstarted_takeovers + :unstarted_takeovers,
       deadlines = deadlines + :deadlines
 where one = 1
