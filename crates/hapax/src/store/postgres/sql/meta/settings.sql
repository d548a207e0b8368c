-- settings: what the promise rests on, as this role finds it.
-- binds: none
-- differs from sqlite: has no counterpart there, where settings are pragmas
select current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
       case when pg_is_in_recovery() then 'on' else current_setting('default_transaction_read_only') end,
       current_setting('default_transaction_isolation'),
       (select extract(epoch from clock_timestamp() - min(xact_start))::bigint
          from pg_stat_activity
         where state <> 'idle' and pid <> pg_backend_pid()),
       (select n_dead_tup from pg_stat_user_tables where relid = 'hapax.jobs'::regclass),
       -- What a program left open holds locks, and dead rows; of other roles' sessions only some roles see the state.
       (select string_agg(format('pid %s of %s (%s), %s s', pid, usename, coalesce(nullif(application_name, ''),
                                 'no name'), extract(epoch from clock_timestamp() - state_change)::bigint), '; '
                          order by state_change)
          from pg_stat_activity
         where datname = current_database() and state like 'idle in transaction%'
           and state_change < clock_timestamp() - interval '1 minute'),
       (select string_agg(distinct relname, ', ')
          from pg_class
         where relnamespace = (select relnamespace from pg_class where oid = 'hapax.jobs'::regclass)
           and case when relkind in ('r', 'p')
                    then not (has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
                              and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete'))
                    when relkind = 'S'
                    then not (has_sequence_privilege(oid, 'usage') and has_sequence_privilege(oid, 'select')
                              and has_sequence_privilege(oid, 'update'))
                    else false end),
       current_user::text,
       (extract(epoch from clock_timestamp()) * 1000)::bigint
