-- find: what the schema says of itself.
-- binds: none
select version, min_program, store
  from hapax.meta
 where one = 1
