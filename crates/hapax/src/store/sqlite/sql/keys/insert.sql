-- insert: a once key that was not known.
-- binds: :boundary, :scope, :hash, :value, :fingerprint, :state, :job, :holder, :fence, :acquisition, :lease_until,
--        :attempts, :since, :ended_at, :keep_until, :result, :refused, :last_refused_at
-- differs from postgres: is hold_places.sql and save.sql there
insert into hapax_keys (
    boundary, scope, hash, value, fingerprint, state, job, holder, fence, acquisition, lease_until,
    attempts, since, ended_at, keep_until, result, refused, last_refused_at)
values (
    :boundary, :scope, :hash, :value, :fingerprint, :state, :job, :holder, :fence, :acquisition, :lease_until,
    :attempts, :since, :ended_at, :keep_until, :result, :refused, :last_refused_at)
