-- next_epoch: after a restore from a backup, fences go on above all that may have been given since it was made.
-- binds: :hours
-- guard: none, because it only ever grows
-- The hours since 2020 keep a second restore of the same backup from giving the first one's epoch again.
update hapax_meta
   set fence = max((fence >> 40) + 1, min(:hours, 8388607)) << 40
 where one = 1
returning fence >> 40
