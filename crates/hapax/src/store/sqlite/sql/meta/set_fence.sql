-- set_fence: counts the fence that the law gave to a lock or a once key.
-- binds: :fence, :was_fence
-- guard: fence
-- differs from postgres: has no counterpart there, where a sequence gives it
update hapax_meta
   set fence = :fence
 where one = 1
   and fence = :was_fence
