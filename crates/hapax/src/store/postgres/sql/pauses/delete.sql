-- delete: lets claims go on.
-- binds: :queue
-- guard: none, because the last word of an operator counts
delete from hapax.pauses
 where queue = :queue
