-- enter: one at a time may grant permits of a lock; nobody can lock the row of a permit that was never granted. It ends
-- with the transaction, so that it works behind a pooler.
-- binds: :identity
-- differs from sqlite: has no counterpart there, where the file itself is locked
select pg_advisory_xact_lock(:identity)
