-- end_leases: no bare claim has outlived the machine's restart. Reads every key, once after each boot.
-- binds: none
-- guard: state
-- differs from postgres: has no counterpart there, where no lease is counted from a boot
update hapax_keys
   set lease_until = 0
 where state = 'held'
   and lease_until is not null
