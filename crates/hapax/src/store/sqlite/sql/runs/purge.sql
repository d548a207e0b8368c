-- purge: the ended runs go with their job.
-- binds: :job
-- guard: none, because the job was deleted in the same transaction
delete from hapax_runs
 where job = :job
