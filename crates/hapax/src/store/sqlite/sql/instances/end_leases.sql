-- end_leases: no instance has outlived the machine's restart.
-- binds: none
-- guard: live
-- differs from postgres: has no counterpart there, where no lease is counted from a boot
update hapax_instances
   set lease_until = 0, reap_from = 0
 where live = 1
