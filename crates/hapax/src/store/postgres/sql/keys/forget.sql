-- forget: a once key that nobody works on is deleted.
-- binds: :boundary, :scope, :hash, :was_state, :was_fence
-- guard: state, fence
delete from hapax.keys
 where boundary = :boundary
   and scope = :scope
   and hash = :hash
   and state = :was_state
   and fence is not distinct from :was_fence
