-- awake: a listener has enough to do.
-- binds: :listener
-- guard: none, because a listener speaks for itself alone
-- differs from sqlite: has no counterpart there, where nobody is told
delete from hapax.sleepers
 where listener = :listener::uuid
