-- end_deadlines: no run has outlived the machine's restart.
-- binds: none
-- guard: state
update hapax_jobs
   set deadline = 0
 where state = 'running'
