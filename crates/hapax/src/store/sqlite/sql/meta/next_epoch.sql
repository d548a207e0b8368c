-- next_epoch: after a restore from a backup, fences go on above all that may have been given since it was made.
-- binds: none
-- guard: none, because it only ever grows
update hapax_meta
   set fence = ((fence >> 40) + 1) << 40
 where one = 1
returning fence >> 40
