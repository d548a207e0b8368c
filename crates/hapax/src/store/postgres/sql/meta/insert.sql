-- insert: makes fresh tables ours.
-- binds: :version, :min_program
-- differs from sqlite: gives the store an id, by the server's clock
insert into hapax.meta (one, version, min_program, store, made_at)
values (1, :version, :min_program, gen_random_uuid(), clock_timestamp())
