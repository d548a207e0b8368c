-- next_fence: the fence of one claim. Asked for only once its rows are locked, so that the fences of one identity grow.
-- binds: none
select nextval('hapax.fences')
