-- settings: what the promise rests on, as this role finds it.
-- binds: none
-- differs from sqlite: has no counterpart there, where settings are pragmas
select current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
       case when pg_is_in_recovery() then 'on' else current_setting('default_transaction_read_only') end,
       current_setting('default_transaction_isolation'),
       (select extract(epoch from clock_timestamp() - min(xact_start))::bigint
          from pg_stat_activity
         where state <> 'idle' and pid <> pg_backend_pid()),
       (select n_dead_tup from pg_stat_user_tables where relid = 'hapax.jobs'::regclass)
