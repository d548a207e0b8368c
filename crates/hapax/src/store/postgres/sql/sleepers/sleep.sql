-- sleep: from now on a listener waits for work of these queues.
-- binds: :listener, :queues
-- guard: none, because a listener speaks for itself alone
-- differs from sqlite: has no counterpart there, where nobody is told
insert into hapax.sleepers (listener, queue, since)
select :listener::uuid, queue, clock_timestamp()
  from unnest(:queues::text[]) as wanted (queue)
on conflict (queue, listener) do update
   set since = excluded.since
