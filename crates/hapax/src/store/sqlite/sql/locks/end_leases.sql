-- end_leases: no permit has outlived the machine's restart.
-- binds: none
-- guard: none, because no lease outlives the boot that it was counted from
update hapax_locks
   set lease_until = 0
