-- find: what the schema says of itself.
-- binds: none
-- differs from sqlite: gives the id of the store; fences are a sequence, and no boot counts
select version, min_program, store
  from hapax.meta
 where one = 1
