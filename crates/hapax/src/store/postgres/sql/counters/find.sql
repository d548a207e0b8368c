-- find: totals since the store was made.
-- binds: none
select coalesce(sum(duplicates_refused), 0)::bigint, coalesce(sum(writes_refused), 0)::bigint,
       coalesce(sum(takeovers), 0)::bigint, coalesce(sum(unstarted_takeovers), 0)::bigint,
       coalesce(sum(deadlines), 0)::bigint
  from hapax.counters
