-- insert: keeps an ended run with its job.
-- binds: :job, :number, :fence, :instance, :started_at, :ended_at, :outcome, :detail
insert into hapax.runs (job, number, fence, instance, started_at, ended_at, outcome, detail)
values (:job, :number, :fence, :instance, :started_at, :ended_at, :outcome, :detail)
