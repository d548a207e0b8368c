-- next_fence: the fence of one claim. Never given twice: it commits with the grant, and no deletion lowers it.
-- binds: none
-- guard: none, because the row is the counter itself
update hapax_meta
   set fence = fence + 1
 where one = 1
returning fence
