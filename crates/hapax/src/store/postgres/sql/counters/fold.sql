-- fold: makes one row of many.
-- binds: none
-- guard: none, because the total stays as it is
-- differs from sqlite: has no counterpart there, where the totals are one row
with gone as (
    delete from hapax.counters
     where key in (select key from hapax.counters order by key limit 10000 for update skip locked)
    returning *)
insert into hapax.counters (duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines)
select sum(duplicates_refused), sum(writes_refused), sum(takeovers), sum(unstarted_takeovers), sum(deadlines)
  from gone
having count(*) > 0
