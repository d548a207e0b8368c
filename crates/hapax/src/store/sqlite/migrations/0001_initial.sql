-- 0001_initial: jobs with their ended runs, once keys, locks, instances, pauses, and the evidence.
--
-- Times are integers: microseconds since 1970 in UTC, or since boot where a comment says "lease clock".
-- Ids are the 16 bytes of a UUID. States are words, not numbers: people read these tables with the sqlite3 shell, and
-- each partial index says in plain words what it holds; the price is a few bytes a row.
-- The limits of names, keys and payloads stand here too, since plain SQL can insert past the program. Of names and keys
-- the pattern says: nothing but U+0020 to U+007E and U+00A0 to U+10FFFF, that is, no control characters (literal
-- characters, since calls of char() in a CHECK are not folded and cost more than all the rest of the row).

create table hapax_meta (
    one         integer primary key check (one = 1),
    version     integer not null check (version >= 1),      -- of this schema
    min_program integer not null check (min_program >= 1),  -- the oldest schema a program must know to work here
    fence       integer not null check (fence >= 0),        -- the last one given: epoch * 2^40 + counter, never lowered
    boot_id     text    not null,                           -- the boot that the lease clock counts from
    made_at     integer not null
) strict;

create table hapax_jobs (
    key                  integer primary key,
    id                   blob    not null unique check (length(id) = 16),
    queue                text    not null check (
        length(cast(queue as blob)) between 1 and 128 and queue not glob '*[^ -~ -􏿿]*' and instr(queue, char(0)) = 0),
    kind                 text    not null check (
        length(cast(kind as blob)) between 1 and 128 and kind not glob '*[^ -~ -􏿿]*' and instr(kind, char(0)) = 0),
    payload_version      integer not null check (payload_version between 0 and 65535),
    priority             integer not null check (priority between -32768 and 32767),
    state                text    not null check (
        state in ('scheduled', 'ready', 'running', 'done', 'parked', 'cancelled', 'in_doubt')),
    due_at               integer not null,
    enqueued_at          integer not null,
    once_boundary        text    check (length(once_boundary) between 1 and 32),
    once_scope           text    check (
        length(cast(once_scope as blob)) between 1 and 128
        and once_scope not glob '*[^ -~ -􏿿]*' and instr(once_scope, char(0)) = 0),
    once_value           text    check (
        length(cast(once_value as blob)) between 1 and 4096
        and once_value not glob '*[^ -~ -􏿿]*' and instr(once_value, char(0)) = 0),
    fingerprint          blob    check (length(fingerprint) = 32),
    guarantee            text    not null default 'at_least_once' check (
        guarantee in ('transactional', 'fenced', 'keyed', 'at_most_once', 'at_least_once')),
    max_attempts         integer not null check (max_attempts between 0 and 4294967295),
    retry_base_ms        integer not null check (retry_base_ms >= 0),
    retry_cap_ms         integer not null check (retry_cap_ms >= 0),
    retry_jitter_percent integer not null check (retry_jitter_percent between 0 and 255),
    run_timeout_ms       integer not null check (run_timeout_ms >= 0),
    keep_ms              integer not null check (keep_ms >= 0),
    keep_key_ms          integer not null default 0 check (keep_key_ms >= 0),
    fence                integer check (fence > 0),         -- of the last claim
    ended_fence          integer check (ended_fence > 0),   -- of the last run that ended by its own finish
    owner                blob    check (length(owner) = 16),
    claim                blob    check (length(claim) = 16),
    claimed_at           integer,
    started_at           integer,
    deadline             integer,                           -- of the run: lease clock
    runs                 integer not null default 0 check (runs between 0 and 4294967295),
    failures             integer not null default 0 check (failures between 0 and 4294967295),
    takeovers            integer not null default 0 check (takeovers between 0 and 4294967295),
    unstarted_takeovers  integer not null default 0 check (unstarted_takeovers between 0 and 4294967295),
    suspect              integer not null default 0 check (suspect in (0, 1)),
    cancel_requested     integer not null default 0 check (cancel_requested in (0, 1)),
    progress             text,
    result               text,
    reason               text,
    finished_at          integer,
    purge_at             integer,
    refused              integer not null default 0 check (refused between 0 and 4294967295),
    -- Last, since what follows a long text is slow to reach.
    payload              text    not null check (
        length(cast(payload as blob)) between 1 and 1048576 and json_valid(payload)),

    check ((once_value is null) = (once_boundary is null) and (once_value is null) = (once_scope is null)),
    -- A job has an owner, a claim and a deadline exactly while it is running.
    check ((state = 'running') = (owner is not null)),
    check ((owner is null) = (claim is null) and (owner is null) = (claimed_at is null)
        and (owner is null) = (deadline is null) and (owner is not null or started_at is null)),
    check (state <> 'running' or fence is not null),
    check ((state in ('done', 'cancelled')) = (purge_at is not null))
) strict;

-- The order of claims. The kind is there so that jobs nobody has a task for are passed over without reading their rows.
create index hapax_jobs_ready on hapax_jobs (queue, priority, due_at, id, kind) where state = 'ready' and suspect = 0;
create index hapax_jobs_suspect on hapax_jobs (queue, priority, due_at, id, kind) where state = 'ready' and suspect = 1;
create index hapax_jobs_scheduled on hapax_jobs (due_at, id) where state = 'scheduled';
-- What belongs to whom, and until when: the reaper reads nothing else of runs that are in order.
create index hapax_jobs_running on hapax_jobs (owner, claim, id, deadline) where state = 'running';
create index hapax_jobs_purge on hapax_jobs (purge_at, id) where purge_at is not null;
-- Counts and lists.
create index hapax_jobs_by_state on hapax_jobs (queue, state, id, kind);

-- Ended runs, except those that took effect (they stand in the job) and those given back untouched.
create table hapax_runs (
    job        blob    not null check (length(job) = 16),
    number     integer not null check (number between 1 and 4294967295),
    fence      integer not null check (fence > 0),
    instance   blob    not null check (length(instance) = 16),
    started_at integer,
    ended_at   integer not null,
    outcome    text    not null check (length(outcome) between 1 and 32),
    detail     text,
    primary key (job, number)
) strict, without rowid;

create table hapax_keys (
    key             integer primary key,
    boundary        text    not null check (length(boundary) between 1 and 32),
    scope           text    not null check (
        length(cast(scope as blob)) between 1 and 128 and scope not glob '*[^ -~ -􏿿]*' and instr(scope, char(0)) = 0),
    hash            blob    not null check (length(hash) = 32),  -- SHA-256 of the whole value
    value           text    not null check (
        length(cast(value as blob)) between 1 and 4096 and value not glob '*[^ -~ -􏿿]*' and instr(value, char(0)) = 0),
    fingerprint     blob    check (length(fingerprint) = 32),
    state           text    not null check (state in ('held', 'done', 'free')),
    job             blob    check (length(job) = 16),            -- the job that has it, or
    holder          text,                                        -- who claimed the bare key
    fence           integer check (fence > 0),
    acquisition     blob    check (length(acquisition) = 16),
    lease_until     integer,                                     -- lease clock
    attempts        integer not null check (attempts between 0 and 4294967295),
    since           integer not null,
    ended_at        integer,
    keep_until      integer,
    result          text,
    refused         integer not null check (refused between 0 and 4294967295),
    last_refused_at integer,

    unique (boundary, scope, hash),
    check ((job is null) <> (holder is null)),
    check ((state = 'held') = (keep_until is null)),
    check ((holder is null) = (fence is null))
) strict;

create index hapax_keys_purge on hapax_keys (keep_until) where keep_until is not null;
create index hapax_keys_by_value on hapax_keys (scope, value) where boundary = 'claim';

create table hapax_locks (
    name        text    not null check (
        length(cast(name as blob)) between 1 and 128 and name not glob '*[^ -~ -􏿿]*' and instr(name, char(0)) = 0),
    slot        integer not null check (slot between 0 and 4294967295),
    permits     integer not null check (permits between 0 and 4294967295), -- how many its holder would share it with
    fence       integer not null check (fence > 0),
    acquisition blob    not null check (length(acquisition) = 16),
    holder      text    not null,
    since       integer not null,
    lease_until integer not null,                               -- lease clock
    primary key (name, slot)
) strict, without rowid;

create table hapax_instances (
    id          blob    primary key not null check (length(id) = 16),
    name        text    not null,
    version     text    not null,
    queues      text    not null check (json_valid(queues)),    -- names, as a JSON list
    kinds       text    not null check (json_valid(kinds)),     -- names, as a JSON list
    lease_ms    integer not null check (lease_ms >= 0),
    live        integer not null check (live in (0, 1)),
    started_at  integer not null,
    renewed_at  integer not null,
    lease_until integer not null,                               -- lease clock
    reap_from   integer not null                                -- lease clock
) strict, without rowid;

create table hapax_pauses (
    queue  text    primary key not null check (length(cast(queue as blob)) between 1 and 128),
    reason text    not null,
    since  integer not null
) strict, without rowid;

-- Writes that lost their guard.
create table hapax_refusals (
    key      integer primary key,
    at       integer not null,
    verb     text    not null,
    identity text    not null,
    fence    integer
) strict;

create index hapax_refusals_at on hapax_refusals (at);

-- Totals since the file was made.
create table hapax_counters (
    one                 integer primary key check (one = 1),
    duplicates_refused  integer not null default 0,
    writes_refused      integer not null default 0,
    takeovers           integer not null default 0,
    unstarted_takeovers integer not null default 0,
    deadlines           integer not null default 0
) strict;

insert into hapax_counters (one) values (1);
