-- add: what one step adds to the totals.
-- binds: :duplicates_refused, :writes_refused, :takeovers, :unstarted_takeovers, :deadlines
-- differs from sqlite: a row of its own, so that no step waits for another
insert into hapax.counters (duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines)
values (:duplicates_refused, :writes_refused, :takeovers, :unstarted_takeovers, :deadlines)
