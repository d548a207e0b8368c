-- next_epoch: after a restore from a backup or a failover, fences go on above all that may have been given since.
-- binds: :hours
-- differs from sqlite: sets a sequence, which no rollback sets back
-- The hours since 2020 keep a second restore of the same backup from giving the first one's epoch again.
select setval('hapax.fences', greatest((last_value >> 40) + 1, least(:hours::bigint, 8388607)) << 40) >> 40
  from hapax.fences
