-- set_boot: the machine was started anew, and the lease clock with it.
-- binds: :boot_id
-- guard: none, because the caller read the old one under the same write lock
-- differs from postgres: has no counterpart there, where no lease is counted from a boot
update hapax_meta
   set boot_id = :boot_id
 where one = 1
