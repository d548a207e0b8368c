-- set: stops claims from a queue. Pausing again changes the reason only.
-- binds: :queue, :reason, :since
-- guard: none, because the last word of an operator counts
insert into hapax.pauses (queue, reason, since)
values (:queue, :reason, :since)
on conflict (queue) do update
   set reason = excluded.reason
