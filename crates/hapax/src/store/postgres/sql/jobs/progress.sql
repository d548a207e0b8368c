-- progress: keeps what the current run says of itself.
-- binds: :text, :id, :fence
-- guard: state, fence
update hapax.jobs
   set progress = :text
 where id = :id
   and state = 'running'
   and fence = :fence
