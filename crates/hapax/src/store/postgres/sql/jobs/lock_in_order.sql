-- lock_in_order: jobs that a step is going to take one by one, so that no two steps wait for each other.
-- binds: :ids
-- differs from sqlite: has no counterpart there, where the file itself is locked
select id
  from hapax.jobs
 where id = any(:ids::uuid[])
 order by id
   for update
