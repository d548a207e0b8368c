-- end_leases: no permit has outlived the machine's restart.
-- binds: none
-- guard: none, because no lease outlives the boot that it was counted from
-- differs from postgres: has no counterpart there, where no lease is counted from a boot
update hapax_locks
   set lease_until = 0
