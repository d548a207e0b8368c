-- purge: the ended runs go with their jobs.
-- binds: :jobs
-- guard: none, because the jobs were deleted in the same transaction
-- differs from sqlite: those of many jobs in one statement
delete from hapax.runs
 where job = any(:jobs::uuid[])
