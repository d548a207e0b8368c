-- done_with_job: the keys of jobs that took effect are refused from now on, until their retention ends.
-- binds: :wall, :boundaries, :scopes, :hashes, :jobs, :keep_ms
-- guard: job
-- differs from sqlite: many keys in one statement, which were locked before in their order
update hapax.keys
   set state = 'done', ended_at = :wall, keep_until = hapax.plus_ms(:wall, ended.keep_ms)
  from unnest(:boundaries::text[], :scopes::text[], :hashes::bytea[], :jobs::uuid[], :keep_ms::bigint[])
    as ended (boundary, scope, hash, job, keep_ms)
 where keys.boundary = ended.boundary
   and keys.scope = ended.scope
   and keys.hash = ended.hash
   and keys.job = ended.job
