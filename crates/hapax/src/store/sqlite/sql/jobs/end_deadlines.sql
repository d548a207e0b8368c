-- end_deadlines: no run has outlived the machine's restart.
-- binds: none
-- guard: state
-- differs from postgres: has no counterpart there, where no lease is counted from a boot
update hapax_jobs
   set deadline = 0
 where state = 'running'
