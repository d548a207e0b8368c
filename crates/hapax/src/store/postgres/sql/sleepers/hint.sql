-- hint: wakes those who wait for work of these queues, once this transaction commits.
-- binds: :queues
-- differs from sqlite: has no counterpart there, where nobody is told
select hapax.hint(:queues::text[])
