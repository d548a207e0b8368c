-- 0001_initial: jobs with their ended runs, once keys, locks, instances, pauses, and the evidence.
--
-- Times are of the server's own type and clock. What comes after the end of time is `infinity`. States are words, since
-- people read these tables with psql, and each partial index says in plain words what it holds. Names are compared byte
-- by byte, hence collation "C". The limits of names, keys and payloads stand here too, since plain SQL can insert past
-- the program; no control characters are in names and keys.

create table hapax.meta (
    one         integer     primary key check (one = 1),
    version     integer     not null check (version >= 1),      -- of this schema
    min_program integer     not null check (min_program >= 1),  -- the oldest schema a program must know to work here
    store       uuid        not null,                           -- tells this store from every other
    made_at     timestamptz not null
);

-- The last fence that was given: epoch * 2^40 + counter. Never lowered; one number at a time, so that they grow in the
-- order in which they are given.
create sequence hapax.fences as bigint minvalue 1 cache 1 no cycle;

create function hapax.plus_ms(at timestamptz, ms bigint) returns timestamptz
    language sql immutable parallel safe
    -- In whole hours, in two halves that fit an integer, and the rest, since an interval is multiplied as a float; past
    -- the end of time it ends there.
    as $$
select case
    when at = 'infinity' or ms >= 9000000000000000
        or extract(epoch from at) + ms / 1000.0 > 9223372036854 then timestamptz 'infinity'
    else at + make_interval(hours => (ms / 7200000)::integer) + make_interval(hours => (ms / 7200000)::integer)
            + (ms % 7200000) * interval '1 millisecond'
end
$$;

create function hapax.is_name(text text, bytes_max integer) returns boolean
    language sql immutable parallel safe
    as $$ select octet_length(text) between 1 and bytes_max and text !~ '[\u0001-\u001f\u007f-\u009f]' $$;

create table hapax.jobs (
    key                  bigint      generated always as identity primary key,
    id                   uuid        not null unique,
    queue                text        collate "C" not null check (hapax.is_name(queue, 128)),
    kind                 text        collate "C" not null check (hapax.is_name(kind, 128)),
    payload_version      integer     not null check (payload_version between 0 and 65535),
    priority             smallint    not null,
    state                text        collate "C" not null check (
        state in ('scheduled', 'ready', 'running', 'done', 'parked', 'cancelled', 'in_doubt')),
    due_at               timestamptz not null,
    enqueued_at          timestamptz not null,
    once_boundary        text        collate "C" check (octet_length(once_boundary) between 1 and 32),
    once_scope           text        collate "C" check (hapax.is_name(once_scope, 128)),
    once_value           text        collate "C" check (hapax.is_name(once_value, 4096)),
    fingerprint          bytea       check (octet_length(fingerprint) = 32),
    guarantee            text        collate "C" not null default 'at_least_once' check (
        guarantee in ('transactional', 'fenced', 'keyed', 'at_most_once', 'at_least_once')),
    max_attempts         bigint      not null check (max_attempts between 0 and 4294967295),
    retry_base_ms        bigint      not null check (retry_base_ms >= 0),
    retry_cap_ms         bigint      not null check (retry_cap_ms >= 0),
    retry_jitter_percent smallint    not null check (retry_jitter_percent between 0 and 255),
    run_timeout_ms       bigint      not null check (run_timeout_ms >= 0),
    keep_ms              bigint      not null check (keep_ms >= 0),
    keep_key_ms          bigint      not null default 0 check (keep_key_ms >= 0),
    fence                bigint      check (fence > 0),         -- of the last claim
    ended_fence          bigint      check (ended_fence > 0),   -- of the last run that ended by its own finish
    owner                uuid,
    claim                uuid,
    claimed_at           timestamptz,
    started_at           timestamptz,
    deadline             timestamptz,                           -- of the run
    runs                 bigint      not null default 0 check (runs between 0 and 4294967295),
    failures             bigint      not null default 0 check (failures between 0 and 4294967295),
    takeovers            bigint      not null default 0 check (takeovers between 0 and 4294967295),
    unstarted_takeovers  bigint      not null default 0 check (unstarted_takeovers between 0 and 4294967295),
    suspect              boolean     not null default false,
    cancel_requested     boolean     not null default false,
    progress             text,
    result               text,
    reason               text,
    finished_at          timestamptz,
    purge_at             timestamptz,
    refused              bigint      not null default 0 check (refused between 0 and 4294967295),
    -- Kept byte for byte; `json` only proves that it is JSON.
    payload              text        not null check (
        octet_length(payload) between 1 and 1048576 and payload::json is not null),

    check ((once_value is null) = (once_boundary is null) and (once_value is null) = (once_scope is null)),
    -- A job has an owner, a claim and a deadline exactly while it is running.
    check ((state = 'running') = (owner is not null)),
    check ((owner is null) = (claim is null) and (owner is null) = (claimed_at is null)
        and (owner is null) = (deadline is null) and (owner is not null or started_at is null)),
    check (state <> 'running' or fence is not null),
    check ((state in ('done', 'cancelled')) = (purge_at is not null))
);

-- The order of claims. The kind is there so that jobs nobody has a task for are passed over without reading their rows.
create index jobs_ready on hapax.jobs (queue, priority, due_at, id, kind) where state = 'ready' and not suspect;
create index jobs_suspect on hapax.jobs (queue, priority, due_at, id, kind) where state = 'ready' and suspect;
create index jobs_scheduled on hapax.jobs (due_at, id) where state = 'scheduled';
-- What belongs to whom, and until when: the reaper reads nothing else of runs that are in order.
create index jobs_running on hapax.jobs (owner, claim, id, deadline) where state = 'running';
create index jobs_purge on hapax.jobs (purge_at, id) where purge_at is not null;
-- Counts and lists.
create index jobs_by_state on hapax.jobs (queue, state, id, kind);

-- Ended runs, except those that took effect (they stand in the job) and those given back untouched.
create table hapax.runs (
    job        uuid        not null,
    number     bigint      not null check (number between 1 and 4294967295),
    fence      bigint      not null check (fence > 0),
    instance   uuid        not null,
    started_at timestamptz,
    ended_at   timestamptz not null,
    outcome    text        collate "C" not null check (octet_length(outcome) between 1 and 32),
    detail     text,
    primary key (job, number)
);

create table hapax.keys (
    key             bigint      generated always as identity primary key,
    boundary        text        collate "C" not null check (octet_length(boundary) between 1 and 32),
    scope           text        collate "C" not null check (hapax.is_name(scope, 128)),
    hash            bytea       not null check (octet_length(hash) = 32),  -- SHA-256 of the whole value
    value           text        collate "C" not null check (hapax.is_name(value, 4096)),
    fingerprint     bytea       check (octet_length(fingerprint) = 32),
    state           text        collate "C" not null check (state in ('held', 'done', 'free')),
    job             uuid,                                                  -- the job that has it, or
    holder          text,                                                  -- who claimed the bare key
    fence           bigint      check (fence > 0),
    acquisition     uuid,
    lease_until     timestamptz,
    attempts        bigint      not null check (attempts between 0 and 4294967295),
    since           timestamptz not null,
    ended_at        timestamptz,
    keep_until      timestamptz,
    result          text,
    refused         bigint      not null check (refused between 0 and 4294967295),
    last_refused_at timestamptz,

    unique (boundary, scope, hash),
    check ((job is null) <> (holder is null)),
    check ((state = 'held') = (keep_until is null)),
    check ((holder is null) = (fence is null))
);

create index keys_purge on hapax.keys (keep_until) where keep_until is not null;
create index keys_lease on hapax.keys (lease_until) where lease_until is not null;

-- Duplicates that were refused, until they are folded into the rows of their keys: so a transaction of the user's that
-- enqueues one holds no lock on the key, for which the finish of the key's own job would wait.
create table hapax.duplicates (
    key bigint      not null,
    at  timestamptz not null
);

create index duplicates_key on hapax.duplicates (key);

create table hapax.locks (
    name        text        collate "C" not null check (hapax.is_name(name, 128)),
    slot        bigint      not null check (slot between 0 and 4294967295),
    permits     bigint      not null check (permits between 0 and 4294967295), -- how many its holder would share it with
    fence       bigint      not null check (fence > 0),
    acquisition uuid        not null,
    holder      text        not null,
    since       timestamptz not null,
    lease_until timestamptz not null,
    primary key (name, slot)
);

create table hapax.instances (
    id          uuid        primary key,
    name        text        not null,
    version     text        not null,
    queues      text[]      not null,
    kinds       text[]      not null,
    lease_ms    bigint      not null check (lease_ms >= 0),
    live        boolean     not null,
    started_at  timestamptz not null,
    renewed_at  timestamptz not null,
    lease_until timestamptz not null,
    reap_from   timestamptz not null
);

create table hapax.pauses (
    queue  text        collate "C" primary key check (hapax.is_name(queue, 128)),
    reason text        not null,
    since  timestamptz not null
);

-- Who waits for a hint that a queue has new work. Without a log of its own: a crash of the server wakes everybody.
create unlogged table hapax.sleepers (
    listener uuid        not null,
    queue    text        collate "C" not null check (hapax.is_name(queue, 128)),
    since    timestamptz not null,
    primary key (queue, listener)
);

create index sleepers_listener on hapax.sleepers (listener);

-- Wakes those who wait for work of these queues, once this transaction commits. Nobody waits while there is much to do,
-- and then nothing is sent: each sending commit takes a lock that all of them share. Who sleeps says so anew every few
-- seconds; one who has not for a minute is gone.
create function hapax.hint(queues text[]) returns void
    language sql
    as $$
select pg_notify('hapax.hints', asleep.queue)
  from (select distinct sleepers.queue
          from hapax.sleepers
         where sleepers.queue = any(queues)
           and sleepers.since > clock_timestamp() - interval '1 minute') as asleep
$$;

-- Writes that lost their guard.
create table hapax.refusals (
    key      bigint      generated always as identity primary key,
    at       timestamptz not null,
    verb     text        not null,
    identity text        not null,
    fence    bigint
);

create index refusals_at on hapax.refusals (at);

-- What each step added to the totals; the pruner makes one row of many. A single row would make every transaction that
-- counts something wait for all others, the user's own long ones included.
create table hapax.counters (
    key                 bigint generated always as identity primary key,
    duplicates_refused  bigint not null,
    writes_refused      bigint not null,
    takeovers           bigint not null,
    unstarted_takeovers bigint not null,
    deadlines           bigint not null
);
