-- next_fence: the fence of one claim. Asked for only once its rows are locked, so that the fences of one identity grow.
-- binds: none
-- differs from sqlite: a sequence; a fence of a step that was undone is never given again
select nextval('hapax.fences')
