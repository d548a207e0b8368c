-- trim: drops the oldest ended runs of a job, up to this number.
-- binds: :job, :number
-- guard: none, because ended runs are a record that nobody writes to
delete from hapax.runs
 where job = :job
   and number <= :number
