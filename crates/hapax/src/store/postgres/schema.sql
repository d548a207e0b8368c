-- The whole schema after all migrations, for people: nothing reads it.
-- Rewritten by HAPAX_BLESS=1 cargo test --test it schema

create table hapax.counters (
    key bigint not null generated always as identity,
    duplicates_refused bigint not null,
    writes_refused bigint not null,
    takeovers bigint not null,
    unstarted_takeovers bigint not null,
    deadlines bigint not null,
    PRIMARY KEY (key)
);

create table hapax.duplicates (
    key bigint not null,
    at timestamp with time zone not null
);

create table hapax.instances (
    id uuid not null,
    name text not null,
    version text not null,
    queues text[] not null,
    kinds text[] not null,
    lease_ms bigint not null,
    live boolean not null,
    started_at timestamp with time zone not null,
    renewed_at timestamp with time zone not null,
    lease_until timestamp with time zone not null,
    reap_from timestamp with time zone not null,
    PRIMARY KEY (id),
    CHECK (lease_ms >= 0)
);

create table hapax.jobs (
    key bigint not null generated always as identity,
    id uuid not null,
    queue text collate "C" not null,
    kind text collate "C" not null,
    payload_version integer not null,
    priority smallint not null,
    state text collate "C" not null,
    due_at timestamp with time zone not null,
    enqueued_at timestamp with time zone not null,
    once_boundary text collate "C",
    once_scope text collate "C",
    once_value text collate "C",
    fingerprint bytea,
    guarantee text collate "C" not null default 'at_least_once'::text,
    max_attempts bigint not null,
    retry_base_ms bigint not null,
    retry_cap_ms bigint not null,
    retry_jitter_percent smallint not null,
    run_timeout_ms bigint not null,
    keep_ms bigint not null,
    keep_key_ms bigint not null default 0,
    fence bigint,
    ended_fence bigint,
    owner uuid,
    claim uuid,
    claimed_at timestamp with time zone,
    started_at timestamp with time zone,
    deadline timestamp with time zone,
    runs bigint not null default 0,
    failures bigint not null default 0,
    takeovers bigint not null default 0,
    unstarted_takeovers bigint not null default 0,
    suspect boolean not null default false,
    cancel_requested boolean not null default false,
    progress text,
    result text,
    reason text,
    finished_at timestamp with time zone,
    purge_at timestamp with time zone,
    refused bigint not null default 0,
    payload text not null,
    PRIMARY KEY (key),
    UNIQUE (id),
    CHECK ((once_value IS NULL) = (once_boundary IS NULL) AND (once_value IS NULL) = (once_scope IS NULL)),
    CHECK ((owner IS NULL) = (claim IS NULL) AND (owner IS NULL) = (claimed_at IS NULL) AND (owner IS NULL) = (deadline IS NULL) AND (owner IS NOT NULL OR started_at IS NULL)),
    CHECK ((state = 'running'::text) = (owner IS NOT NULL)),
    CHECK ((state = ANY (ARRAY['done'::text, 'cancelled'::text])) = (purge_at IS NOT NULL)),
    CHECK (ended_fence > 0),
    CHECK (failures >= 0 AND failures <= '4294967295'::bigint),
    CHECK (fence > 0),
    CHECK (guarantee = ANY (ARRAY['transactional'::text, 'fenced'::text, 'keyed'::text, 'at_most_once'::text, 'at_least_once'::text])),
    CHECK (hapax.is_name(kind, 128)),
    CHECK (hapax.is_name(once_scope, 128)),
    CHECK (hapax.is_name(once_value, 4096)),
    CHECK (hapax.is_name(queue, 128)),
    CHECK (keep_key_ms >= 0),
    CHECK (keep_ms >= 0),
    CHECK (max_attempts >= 0 AND max_attempts <= '4294967295'::bigint),
    CHECK (octet_length(fingerprint) = 32),
    CHECK (octet_length(once_boundary) >= 1 AND octet_length(once_boundary) <= 32),
    CHECK (octet_length(payload) >= 1 AND octet_length(payload) <= 1048576 AND payload::json IS NOT NULL),
    CHECK (payload_version >= 0 AND payload_version <= 65535),
    CHECK (refused >= 0 AND refused <= '4294967295'::bigint),
    CHECK (retry_base_ms >= 0),
    CHECK (retry_cap_ms >= 0),
    CHECK (retry_jitter_percent >= 0 AND retry_jitter_percent <= 255),
    CHECK (run_timeout_ms >= 0),
    CHECK (runs >= 0 AND runs <= '4294967295'::bigint),
    CHECK (state <> 'running'::text OR fence IS NOT NULL),
    CHECK (state = ANY (ARRAY['scheduled'::text, 'ready'::text, 'running'::text, 'done'::text, 'parked'::text, 'cancelled'::text, 'in_doubt'::text])),
    CHECK (takeovers >= 0 AND takeovers <= '4294967295'::bigint),
    CHECK (unstarted_takeovers >= 0 AND unstarted_takeovers <= '4294967295'::bigint)
);

create table hapax.keys (
    key bigint not null generated always as identity,
    boundary text collate "C" not null,
    scope text collate "C" not null,
    hash bytea not null,
    value text collate "C" not null,
    fingerprint bytea,
    state text collate "C" not null,
    job uuid,
    holder text,
    fence bigint,
    acquisition uuid,
    lease_until timestamp with time zone,
    attempts bigint not null,
    since timestamp with time zone not null,
    ended_at timestamp with time zone,
    keep_until timestamp with time zone,
    result text,
    refused bigint not null,
    last_refused_at timestamp with time zone,
    PRIMARY KEY (key),
    UNIQUE (boundary, scope, hash),
    CHECK ((holder IS NULL) = (fence IS NULL)),
    CHECK ((job IS NULL) <> (holder IS NULL)),
    CHECK ((state = 'held'::text) = (keep_until IS NULL)),
    CHECK (attempts >= 0 AND attempts <= '4294967295'::bigint),
    CHECK (fence > 0),
    CHECK (hapax.is_name(scope, 128)),
    CHECK (hapax.is_name(value, 4096)),
    CHECK (octet_length(boundary) >= 1 AND octet_length(boundary) <= 32),
    CHECK (octet_length(fingerprint) = 32),
    CHECK (octet_length(hash) = 32),
    CHECK (refused >= 0 AND refused <= '4294967295'::bigint),
    CHECK (state = ANY (ARRAY['held'::text, 'done'::text, 'free'::text]))
);

create table hapax.locks (
    name text collate "C" not null,
    slot bigint not null,
    permits bigint not null,
    fence bigint not null,
    acquisition uuid not null,
    holder text not null,
    since timestamp with time zone not null,
    lease_until timestamp with time zone not null,
    PRIMARY KEY (name, slot),
    CHECK (fence > 0),
    CHECK (hapax.is_name(name, 128)),
    CHECK (permits >= 0 AND permits <= '4294967295'::bigint),
    CHECK (slot >= 0 AND slot <= '4294967295'::bigint)
);

create table hapax.meta (
    one integer not null,
    version integer not null,
    min_program integer not null,
    store uuid not null,
    made_at timestamp with time zone not null,
    PRIMARY KEY (one),
    CHECK (min_program >= 1),
    CHECK (one = 1),
    CHECK (version >= 1)
);

create table hapax.pauses (
    queue text collate "C" not null,
    reason text not null,
    since timestamp with time zone not null,
    PRIMARY KEY (queue),
    CHECK (hapax.is_name(queue, 128))
);

create table hapax.refusals (
    key bigint not null generated always as identity,
    at timestamp with time zone not null,
    verb text not null,
    identity text not null,
    fence bigint,
    PRIMARY KEY (key)
);

create table hapax.runs (
    job uuid not null,
    number bigint not null,
    fence bigint not null,
    instance uuid not null,
    started_at timestamp with time zone,
    ended_at timestamp with time zone not null,
    outcome text collate "C" not null,
    detail text,
    PRIMARY KEY (job, number),
    CHECK (fence > 0),
    CHECK (number >= 1 AND number <= '4294967295'::bigint),
    CHECK (octet_length(outcome) >= 1 AND octet_length(outcome) <= 32)
);

create unlogged table hapax.sleepers (
    listener uuid not null,
    queue text collate "C" not null,
    since timestamp with time zone not null,
    PRIMARY KEY (queue, listener),
    CHECK (hapax.is_name(queue, 128))
);

CREATE INDEX duplicates_key ON hapax.duplicates USING btree (key);

CREATE INDEX jobs_by_state ON hapax.jobs USING btree (queue, state, id, kind);

CREATE INDEX jobs_purge ON hapax.jobs USING btree (purge_at, id) WHERE (purge_at IS NOT NULL);

CREATE INDEX jobs_ready ON hapax.jobs USING btree (queue, priority, due_at, id, kind) WHERE ((state = 'ready'::text) AND (NOT suspect));

CREATE INDEX jobs_running ON hapax.jobs USING btree (owner, claim, id, deadline) WHERE (state = 'running'::text);

CREATE INDEX jobs_scheduled ON hapax.jobs USING btree (due_at, id) WHERE (state = 'scheduled'::text);

CREATE INDEX jobs_suspect ON hapax.jobs USING btree (queue, priority, due_at, id, kind) WHERE ((state = 'ready'::text) AND suspect);

CREATE INDEX keys_lease ON hapax.keys USING btree (lease_until) WHERE (lease_until IS NOT NULL);

CREATE INDEX keys_purge ON hapax.keys USING btree (keep_until) WHERE (keep_until IS NOT NULL);

CREATE INDEX refusals_at ON hapax.refusals USING btree (at);

CREATE INDEX sleepers_listener ON hapax.sleepers USING btree (listener);

create sequence hapax.fences as bigint increment 1 minvalue 1 maxvalue 9223372036854775807 start 1 cache 1;

CREATE OR REPLACE FUNCTION hapax.enqueue(kind text, payload text, queue text DEFAULT 'default'::text, once text DEFAULT NULL::text, due_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay_ms bigint DEFAULT NULL::bigint, priority bigint DEFAULT 0, INOUT id uuid DEFAULT NULL::uuid, payload_version bigint DEFAULT 1, once_scope text DEFAULT NULL::text, fingerprint bytea DEFAULT NULL::bytea, made_at timestamp with time zone DEFAULT NULL::timestamp with time zone, guarantee text DEFAULT 'at_least_once'::text, max_attempts bigint DEFAULT 20, retry_base_ms bigint DEFAULT 1000, retry_cap_ms bigint DEFAULT 3600000, retry_jitter_percent bigint DEFAULT 20, run_timeout_ms bigint DEFAULT 600000, keep_ms bigint DEFAULT 604800000, keep_key_ms bigint DEFAULT '2592000000'::bigint, OUT existed boolean, OUT done boolean)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
declare
    fault text[];
    taken record;
    now   timestamptz;
begin
    fault := coalesce(
        hapax.fault_of_name('kind', enqueue.kind, 128),
        hapax.fault_of_name('queue', enqueue.queue, 128),
        hapax.fault_of_payload(enqueue.payload),
        hapax.fault_of_job(
            enqueue.guarantee, enqueue.due_at, enqueue.delay_ms, enqueue.payload_version, enqueue.priority,
            enqueue.max_attempts, enqueue.retry_base_ms, enqueue.retry_cap_ms, enqueue.retry_jitter_percent,
            enqueue.run_timeout_ms, enqueue.keep_ms, enqueue.keep_key_ms));
    if fault is null and enqueue.once is not null then
        once_scope := coalesce(enqueue.once_scope, enqueue.kind);
        fault := coalesce(
            hapax.fault_of_name('once', enqueue.once, 4096), hapax.fault_of_name('once_scope', enqueue.once_scope, 128),
            hapax.fault_of_fingerprint(enqueue.fingerprint));
        fingerprint := coalesce(enqueue.fingerprint, sha256(convert_to(enqueue.payload, 'UTF8')));
    elsif fault is null and coalesce(enqueue.once_scope, encode(enqueue.fingerprint, 'hex'), enqueue.made_at::text)
            is not null then
        fault := array['once_scope, fingerprint or made_at is given without once', 'give the once key as well'];
    end if;
    if fault is not null then
        perform hapax.refuse_argument(fault);
    end if;

    id := coalesce(enqueue.id, hapax.new_id());
    existed := false;
    done := false;
    perform 1 from hapax.jobs where jobs.id = enqueue.id;
    if found then
        return;
    end if;
    if enqueue.once is not null then
        select * into taken
          from hapax.take_key_for_job(enqueue.once_scope, enqueue.once, enqueue.fingerprint, enqueue.keep_key_ms,
                                      enqueue.made_at, enqueue.id);
        if taken.holder is not null then
            existed := taken.holder <> enqueue.id;
            done := existed and taken.is_done;
            id := taken.holder;
            return;
        end if;
    end if;

    -- Now that no other is waited for any more.
    now := clock_timestamp();
    due_at := coalesce(enqueue.due_at, hapax.plus_ms(now, coalesce(enqueue.delay_ms, 0)));
    insert into hapax.jobs (
        id, queue, kind, payload, payload_version, priority, state, due_at, enqueued_at,
        once_boundary, once_scope, once_value, fingerprint, guarantee, max_attempts,
        retry_base_ms, retry_cap_ms, retry_jitter_percent, run_timeout_ms, keep_ms, keep_key_ms)
    values (
        enqueue.id, enqueue.queue, enqueue.kind, enqueue.payload, enqueue.payload_version, enqueue.priority,
        case when enqueue.due_at > now then 'scheduled' else 'ready' end, enqueue.due_at, now,
        case when enqueue.once is not null then 'enqueue' end, enqueue.once_scope, enqueue.once, enqueue.fingerprint,
        enqueue.guarantee, enqueue.max_attempts, enqueue.retry_base_ms, enqueue.retry_cap_ms,
        enqueue.retry_jitter_percent, enqueue.run_timeout_ms, enqueue.keep_ms,
        case when enqueue.once is not null then enqueue.keep_key_ms else 0 end)
    on conflict (id) do nothing;
    if not found and enqueue.once is not null then
        -- Another transaction took the id for a job without this key, which must not be held for that one.
        raise exception using errcode = '40001', hint = 'try again, or give each job an id of its own',
            message = format('job %s was enqueued by another transaction just now', enqueue.id);
    end if;
    if enqueue.due_at <= now then
        -- Those who sleep learn of it once the transaction commits.
        perform hapax.hint(array[enqueue.queue]);
    end if;
end
$function$;

CREATE OR REPLACE FUNCTION hapax.fault_of_fingerprint(value bytea)
 RETURNS text[]
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
select case
    when octet_length(value) <> 32 then
        array[format('fingerprint is %s bytes long, not 32', octet_length(value)),
              'give a SHA-256, such as sha256(convert_to(TEXT, ''UTF8''))']
end
$function$;

CREATE OR REPLACE FUNCTION hapax.fault_of_job(guarantee text, due_at timestamp with time zone, delay_ms bigint, payload_version bigint, priority bigint, max_attempts bigint, retry_base_ms bigint, retry_cap_ms bigint, retry_jitter_percent bigint, run_timeout_ms bigint, keep_ms bigint, keep_key_ms bigint)
 RETURNS text[]
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
AS $function$
begin
    if guarantee is null
        or guarantee not in ('transactional', 'fenced', 'keyed', 'at_most_once', 'at_least_once') then
        return array[format('guarantee is %s', coalesce(quote_literal(guarantee), 'null')),
                     'say transactional, fenced, keyed, at_most_once or at_least_once'];
    elsif due_at is not null and delay_ms is not null then
        return array['due_at and delay_ms are both given', 'give one of them'];
    end if;
    return coalesce(
        case when delay_ms < 0 then array[format('delay_ms is %s', delay_ms), 'give a number from 0'] end,
        hapax.fault_of_number('payload_version', payload_version, 0, 65535),
        hapax.fault_of_number('priority', priority, -32768, 32767),
        hapax.fault_of_number('max_attempts', max_attempts, 1, 4294967295),
        hapax.fault_of_number('retry_base_ms', retry_base_ms, 0, 9223372036854775807),
        hapax.fault_of_number('retry_cap_ms', retry_cap_ms, 0, 9223372036854775807),
        hapax.fault_of_number('retry_jitter_percent', retry_jitter_percent, 0, 100),
        hapax.fault_of_number('run_timeout_ms', run_timeout_ms, 1, 9223372036854775807),
        hapax.fault_of_number('keep_ms', keep_ms, 0, 9223372036854775807),
        hapax.fault_of_number('keep_key_ms', keep_key_ms, 0, 9223372036854775807));
end
$function$;

CREATE OR REPLACE FUNCTION hapax.fault_of_name(argument text, value text, bytes_max integer)
 RETURNS text[]
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
select case
    when value is null then array[argument || ' is null', 'give at least one character']
    when value = '' then array[argument || ' is empty', 'give at least one character']
    when octet_length(value) > bytes_max then
        array[format('%s is %s bytes long, over the limit of %s', argument, octet_length(value), bytes_max),
              'shorten it, or use a hash of it']
    when not hapax.is_name(value, bytes_max) then array[argument || ' has a control character', 'remove it']
end
$function$;

CREATE OR REPLACE FUNCTION hapax.fault_of_number(argument text, value bigint, first bigint, last bigint)
 RETURNS text[]
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
select case
    when value is null then array[argument || ' is null', 'leave it out for the default']
    when value < first or value > last then
        array[format('%s is %s', argument, value), format('give a number from %s to %s', first, last)]
end
$function$;

CREATE OR REPLACE FUNCTION hapax.fault_of_payload(value text)
 RETURNS text[]
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
AS $function$
begin
    if value is null then
        return array['payload is null', 'send one JSON value, such as {}'];
    elsif octet_length(value) > 1048576 then
        return array[format('payload is %s bytes long, over the limit of 1048576', octet_length(value)),
                     'store the data elsewhere and send its address'];
    end if;
    perform value::json;
    return null;
exception when invalid_text_representation then
    return array['payload is not JSON', 'send one JSON value, such as {}; a text is one in double quotes'];
end
$function$;

CREATE OR REPLACE FUNCTION hapax.fence_ok(job uuid, fence bigint)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
begin
    perform 1
       from hapax.jobs
      where jobs.id = fence_ok.job and jobs.state = 'running' and jobs.fence = fence_ok.fence
        for key share;
    if not found then
        perform hapax.keep_refusal('fence_ok', coalesce(fence_ok.job::text, 'null'), fence_ok.fence);
        return false;
    end if;
    return true;
end
$function$;

CREATE OR REPLACE FUNCTION hapax.finish(job uuid, fence bigint, result text DEFAULT NULL::text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
declare
    now   timestamptz := clock_timestamp();
    ended record;
begin
    update hapax.jobs
       set state = 'done', ended_fence = finish.fence,
           owner = null, claim = null, claimed_at = null, started_at = null, deadline = null,
           runs = least(jobs.runs + 1, 4294967295), unstarted_takeovers = 0, suspect = false, cancel_requested = false,
           result = hapax.kept_text(finish.result), reason = null, finished_at = now,
           -- Ten minutes at least, as on every store: so long a lost answer to its enqueue may be asked for again.
           purge_at = hapax.plus_ms(now, greatest(jobs.keep_ms, 600000))
     where jobs.id = finish.job
       and jobs.state = 'running'
       and jobs.fence = finish.fence
    returning jobs.once_boundary, jobs.once_scope, jobs.once_value, jobs.keep_key_ms into ended;
    if not found then
        perform hapax.keep_refusal('finish', coalesce(finish.job::text, 'null'), finish.fence);
        -- Not in the job's row: that is another's by now, whom this transaction, which may last, must not hold up.
        return false;
    end if;
    if ended.once_value is not null then
        update hapax.keys
           set state = 'done', ended_at = now, keep_until = hapax.plus_ms(now, ended.keep_key_ms)
         where keys.boundary = ended.once_boundary
           and keys.scope = ended.once_scope
           and keys.hash = sha256(convert_to(ended.once_value, 'UTF8'))
           and keys.job = finish.job;
    end if;
    return true;
end
$function$;

CREATE OR REPLACE FUNCTION hapax.hint(queues text[])
 RETURNS void
 LANGUAGE sql
AS $function$
select pg_notify('hapax.hints', asleep.queue)
  from (select distinct sleepers.queue
          from hapax.sleepers
         where sleepers.queue = any(queues)
           and sleepers.since > clock_timestamp() - interval '1 minute') as asleep
$function$;

CREATE OR REPLACE FUNCTION hapax.is_key_free(state text, keep_until timestamp with time zone, lease_until timestamp with time zone, at timestamp with time zone)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
select state = 'free' or coalesce(case state when 'held' then lease_until else keep_until end <= at, false)
$function$;

CREATE OR REPLACE FUNCTION hapax.is_name(text text, bytes_max integer)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$ select octet_length(text) between 1 and bytes_max and text !~ '[\u0001-\u001f\u007f-\u009f]' $function$;

CREATE OR REPLACE FUNCTION hapax.keep_duplicate(key bigint, at timestamp with time zone)
 RETURNS void
 LANGUAGE sql
AS $function$
insert into hapax.duplicates (key, at) values (key, at);
insert into hapax.counters (duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines)
values (1, 0, 0, 0, 0);
$function$;

CREATE OR REPLACE FUNCTION hapax.keep_refusal(verb text, identity text, fence bigint)
 RETURNS void
 LANGUAGE sql
AS $function$
insert into hapax.refusals (at, verb, identity, fence) values (clock_timestamp(), verb, identity, fence);
insert into hapax.counters (duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines)
values (0, 1, 0, 0, 0);
$function$;

CREATE OR REPLACE FUNCTION hapax.kept_text(value text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
AS $function$
declare
    bytes bytea;
    mark  text;
    ends  integer;
begin
    if value is null or octet_length(value) <= 65536 then
        return value;
    end if;
    bytes := convert_to(value, 'UTF8');
    mark := format('… [cut: %s bytes in all]', octet_length(bytes));
    ends := 65536 - octet_length(mark);
    while (get_byte(bytes, ends) & 192) = 128 loop
        ends := ends - 1;
    end loop;
    return convert_from(substring(bytes from 1 for ends), 'UTF8') || mark;
end
$function$;

CREATE OR REPLACE FUNCTION hapax.lock_ok(name text, slot bigint, fence bigint)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
begin
    perform 1
       from hapax.locks
      where locks.name = lock_ok.name and locks.slot = lock_ok.slot and locks.fence = lock_ok.fence
        for key share;
    if not found then
        perform hapax.keep_refusal('guard_lock', format('lock %s/%s', lock_ok.name, lock_ok.slot), lock_ok.fence);
        return false;
    end if;
    return true;
end
$function$;

CREATE OR REPLACE FUNCTION hapax.look_at_key(boundary text, scope text, value text, fingerprint bytea, keep_ms bigint, made_at timestamp with time zone, mine uuid, OUT key bigint, OUT is_free boolean, OUT state text, OUT job uuid, OUT holder text, OUT lease_until timestamp with time zone, OUT attempts bigint, OUT refused bigint, OUT last_refused_at timestamp with time zone, OUT at timestamp with time zone)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
declare
    digest  bytea := sha256(convert_to(look_at_key.value, 'UTF8'));
    is_made boolean;
    k       hapax.keys;
begin
    loop
        -- A key that is not known gets a row that says just that, so that there is something to lock.
        insert into hapax.keys (boundary, scope, hash, value, state, job, attempts, since, keep_until, refused)
        values (look_at_key.boundary, look_at_key.scope, digest, look_at_key.value, 'free',
                '00000000-0000-0000-0000-000000000000', 0, '-infinity', '-infinity', 0)
        on conflict (boundary, scope, hash) do nothing
        returning keys.* into k;
        is_made := found;
        if not is_made then
            select keys.* into k
              from hapax.keys
             where boundary = look_at_key.boundary and scope = look_at_key.scope and hash = digest;
            -- Deleted by the pruner since: once more.
            continue when not found;
        end if;
        at := clock_timestamp();
        is_free := hapax.is_key_free(k.state, k.keep_until, k.lease_until, at);
        exit when is_made or not is_free;
        select keys.* into k from hapax.keys where key = k.key for update;
        continue when not found;
        at := clock_timestamp();
        is_free := hapax.is_key_free(k.state, k.keep_until, k.lease_until, at);
        exit;
    end loop;
    key := k.key; state := k.state; job := k.job; holder := k.holder; lease_until := k.lease_until;
    if not is_free then
        if (mine is null or k.job is distinct from mine) and k.fingerprint <> look_at_key.fingerprint then
            perform hapax.refuse_other_work(value, k.job, k.holder, k.fingerprint, look_at_key.fingerprint);
        end if;
        return;
    end if;
    with gone as (delete from hapax.duplicates where duplicates.key = k.key returning duplicates.at)
    select k.refused + count(*), greatest(k.last_refused_at, max(gone.at)), k.attempts
      into refused, last_refused_at, attempts from gone;
    if k.state <> 'held' and k.keep_until <= at then
        if hapax.plus_ms(made_at, keep_ms) <= at then
            perform hapax.refuse_old_message(value, keep_ms);
        end if;
        attempts := 0; refused := 0; last_refused_at := null;
    end if;
end
$function$;

CREATE OR REPLACE FUNCTION hapax.new_id()
 RETURNS uuid
 LANGUAGE sql
 PARALLEL SAFE
AS $function$
select encode(set_byte(bytes, 6, (get_byte(bytes, 6) & 15) | 112), 'hex')::uuid
  from (select substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
               || substring(uuid_send(gen_random_uuid()) from 7)) as fresh (bytes)
$function$;

CREATE OR REPLACE FUNCTION hapax.once(key text, scope text DEFAULT 'inbox'::text, fingerprint bytea DEFAULT NULL::bytea, keep_ms bigint DEFAULT '2592000000'::bigint, made_at timestamp with time zone DEFAULT NULL::timestamp with time zone, holder text DEFAULT NULL::text, result text DEFAULT NULL::text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
declare
    fault text[];
    k     record;
begin
    holder := coalesce(once.holder, nullif(left(current_setting('application_name'), 32), ''), session_user);
    fault := coalesce(
        hapax.fault_of_name('key', once.key, 4096), hapax.fault_of_name('scope', once.scope, 128),
        hapax.fault_of_name('holder', once.holder, 128), hapax.fault_of_fingerprint(once.fingerprint),
        hapax.fault_of_number('keep_ms', once.keep_ms, 0, 9223372036854775807));
    if fault is not null then
        perform hapax.refuse_argument(fault);
    end if;
    select * into k
      from hapax.look_at_key('claim', once.scope, once.key, once.fingerprint, once.keep_ms, once.made_at, null);
    if not k.is_free then
        if k.state = 'held' then
            -- Not `false`: that would have the caller drop the message, and this other may still fail.
            raise exception using errcode = 'HX003', hint = 'try again later',
                message = format('once key `%s` is being worked on by %s until %s', once.key,
                                 coalesce(k.holder, 'job ' || k.job), k.lease_until);
        end if;
        perform hapax.keep_duplicate(k.key, k.at);
        return false;
    end if;
    update hapax.keys
       set fingerprint = once.fingerprint, state = 'done', job = null, holder = once.holder,
           fence = nextval('hapax.fences'), acquisition = gen_random_uuid(), lease_until = null,
           attempts = least(k.attempts + 1, 4294967295), since = k.at, ended_at = k.at,
           keep_until = hapax.plus_ms(k.at, once.keep_ms), result = hapax.kept_text(once.result),
           refused = k.refused, last_refused_at = k.last_refused_at
     where keys.key = k.key;
    return true;
end
$function$;

CREATE OR REPLACE FUNCTION hapax.plus_ms(at timestamp with time zone, ms bigint)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
select case
    when at = 'infinity' or ms >= 9000000000000000
        or extract(epoch from at) + ms / 1000.0 > 9223372036854 then timestamptz 'infinity'
    else at + make_interval(hours => (ms / 7200000)::integer) + make_interval(hours => (ms / 7200000)::integer)
            + (ms % 7200000) * interval '1 millisecond'
end
$function$;

CREATE OR REPLACE FUNCTION hapax.refuse_argument(fault text[])
 RETURNS void
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
    raise exception using errcode = '22023', message = fault[1], hint = fault[2];
end
$function$;

CREATE OR REPLACE FUNCTION hapax.refuse_old_message(value text, keep_ms bigint)
 RETURNS void
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
    raise exception using
        errcode = 'HX002',
        message = format('the message behind once key `%s` is older than the %s ms that keys are remembered', value,
                         keep_ms),
        hint = 'it may have taken effect before: check by hand, then send it without `made_at`';
end
$function$;

CREATE OR REPLACE FUNCTION hapax.refuse_other_work(value text, job uuid, holder text, kept bytea, given bytea)
 RETURNS void
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
    raise exception using
        errcode = 'HX001',
        message = format('once key `%s` stands for other work: %s has fingerprint %s, this has %s', value,
                         coalesce('job ' || job, 'the claim of ' || holder),
                         left(encode(kept, 'hex'), 12), left(encode(given, 'hex'), 12)),
        hint = 'use another key, or send the same work';
end
$function$;

CREATE OR REPLACE FUNCTION hapax.take_key_for_job(scope text, value text, fingerprint bytea, keep_ms bigint, made_at timestamp with time zone, mine uuid, OUT holder uuid, OUT is_done boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
declare
    k record;
begin
    select * into k
      from hapax.look_at_key('enqueue', take_key_for_job.scope, value, take_key_for_job.fingerprint, keep_ms, made_at,
                             mine);
    if k.is_free then
        update hapax.keys
           set fingerprint = take_key_for_job.fingerprint, state = 'held', job = mine, holder = null, fence = null,
               acquisition = null, lease_until = null, attempts = 0, since = k.at, ended_at = null, keep_until = null,
               result = null, refused = k.refused, last_refused_at = k.last_refused_at
         where keys.key = k.key;
        return;
    elsif k.job is null then
        raise exception using errcode = 'HX001', hint = 'use another key',
            message = format('once key `%s` is claimed by %s, not by a job', value, k.holder);
    elsif k.job <> mine then
        perform hapax.keep_duplicate(k.key, k.at);
    end if;
    holder := k.job;
    is_done := k.state = 'done';
end
$function$;
