-- insert: makes a fresh file ours, at the version that its tables are about to have.
-- binds: :version, :min_program, :boot_id, :wall
insert into hapax_meta (one, version, min_program, fence, boot_id, made_at)
values (1, :version, :min_program, 0, :boot_id, :wall)
