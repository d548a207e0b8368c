-- find: totals since the store was made.
-- binds: none
-- differs from sqlite: adds up many rows
select coalesce(sum(duplicates_refused), 0)::bigint, coalesce(sum(writes_refused), 0)::bigint,
       coalesce(sum(takeovers), 0)::bigint, coalesce(sum(unstarted_takeovers), 0)::bigint,
       coalesce(sum(deadlines), 0)::bigint
  from hapax.counters
