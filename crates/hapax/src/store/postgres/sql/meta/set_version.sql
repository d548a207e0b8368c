-- set_version: after a migration.
-- binds: :version, :min_program
-- guard: version; so that a version never goes back
update hapax.meta
   set version = :version, min_program = :min_program
 where one = 1
   and version < :version
