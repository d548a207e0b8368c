-- 0001_functions: what any client that speaks SQL may call, in a transaction of its own.
--
-- Each does what the verb of that name does in the program, with the same rows locked in the same order, so both may be
-- used on one store. All run with the rights of who calls them. The settings that stand with them keep names from being
-- looked up in a path of the caller's, and a plan that was made while a table was empty from reading all of it later.
--
-- SQLSTATE: 22023 an argument breaks a limit, and the message names it; HX001 the once key stands for other work; HX002
-- the message is older than the key's memory; HX003 another does this work just now.

-- ------------------------------------------------------------------------------------------------------------- parts

-- An id as the programs make them: UUID version 7, so that new ones come last.
create function hapax.new_id() returns uuid
    language sql volatile parallel safe
    as $$
select encode(set_byte(bytes, 6, (get_byte(bytes, 6) & 15) | 112), 'hex')::uuid
  from (select substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
               || substring(uuid_send(gen_random_uuid()) from 7)) as fresh (bytes)
$$;

-- What is wrong with a name or a key, and the mend; nothing if it is legal.
create function hapax.fault_of_name(argument text, value text, bytes_max integer) returns text[]
    language sql immutable parallel safe
    as $$
select case
    when value is null then array[argument || ' is null', 'give at least one character']
    when value = '' then array[argument || ' is empty', 'give at least one character']
    when octet_length(value) > bytes_max then
        array[format('%s is %s bytes long, over the limit of %s', argument, octet_length(value), bytes_max),
              'shorten it, or use a hash of it']
    when not hapax.is_name(value, bytes_max) then array[argument || ' has a control character', 'remove it']
end
$$;

-- The same for a number.
create function hapax.fault_of_number(argument text, value bigint, first bigint, last bigint) returns text[]
    language sql immutable parallel safe
    as $$
select case
    when value is null then array[argument || ' is null', 'leave it out for the default']
    when value < first or value > last then
        array[format('%s is %s', argument, value), format('give a number from %s to %s', first, last)]
end
$$;

-- The same for a fingerprint.
create function hapax.fault_of_fingerprint(value bytea) returns text[]
    language sql immutable parallel safe
    as $$
select case
    when octet_length(value) <> 32 then
        array[format('fingerprint is %s bytes long, not 32', octet_length(value)),
              'give a SHA-256, such as sha256(convert_to(TEXT, ''UTF8''))']
end
$$;

-- The same for a payload.
create function hapax.fault_of_payload(value text) returns text[]
    language plpgsql immutable parallel safe
    as $$
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
$$;

create function hapax.refuse_argument(fault text[]) returns void
    language plpgsql stable
    as $$
begin
    raise exception using errcode = '22023', message = fault[1], hint = fault[2];
end
$$;

-- A result as it is kept: cut at 64 KiB, between two characters, with a mark that says so.
create function hapax.kept_text(value text) returns text
    language plpgsql immutable parallel safe
    as $$
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
$$;

-- Keeps a write that lost its guard as evidence.
create function hapax.keep_refusal(verb text, identity text, fence bigint) returns void
    language sql volatile
    as $$
insert into hapax.refusals (at, verb, identity, fence) values (clock_timestamp(), verb, identity, fence);
insert into hapax.counters (duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines)
values (0, 1, 0, 0, 0);
$$;

-- Keeps a refused duplicate, beside the row of its key: that stays unlocked, since this transaction may last.
create function hapax.keep_duplicate(key bigint, at timestamptz) returns void
    language sql volatile
    as $$
insert into hapax.duplicates (key, at) values (key, at);
insert into hapax.counters (duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines)
values (1, 0, 0, 0, 0);
$$;

-- Says that a key stands for other work.
create function hapax.refuse_other_work(value text, job uuid, holder text, kept bytea, given bytea) returns void
    language plpgsql stable
    as $$
begin
    raise exception using
        errcode = 'HX001',
        message = format('once key `%s` stands for other work: %s has fingerprint %s, this has %s', value,
                         coalesce('job ' || job, 'the claim of ' || holder),
                         left(encode(kept, 'hex'), 12), left(encode(given, 'hex'), 12)),
        hint = 'use another key, or send the same work';
end
$$;

-- Says that nobody knows any more whether a message took effect.
create function hapax.refuse_old_message(value text, keep_ms bigint) returns void
    language plpgsql stable
    as $$
begin
    raise exception using
        errcode = 'HX002',
        message = format('the message behind once key `%s` is older than the %s ms that keys are remembered', value,
                         keep_ms),
        hint = 'it may have taken effect before: check by hand, then send it without `made_at`';
end
$$;

-- ----------------------------------------------------------------------------------------------------------- once keys

-- Whether a key is to be had: its work did not take effect, its retention has passed, or its claim ran out.
create function hapax.is_key_free(state text, keep_until timestamptz, lease_until timestamptz, at timestamptz)
    returns boolean
    language sql immutable parallel safe
    as $$
select state = 'free' or coalesce(case state when 'held' then lease_until else keep_until end <= at, false)
$$;

-- Looks whether a once key is to be had. If so its row is locked and the caller must take it; who wants the same key
-- waits for this transaction. If other work has it, the row is not locked: a duplicate in a transaction that lasts does
-- not hold up the finish of that work. `attempts`, `refused` and `last_refused_at` are what goes on with the key.
create function hapax.look_at_key(
    boundary text, scope text, value text, fingerprint bytea, keep_ms bigint, made_at timestamptz, mine uuid,
    out key bigint, out is_free boolean, out state text, out job uuid, out holder text, out lease_until timestamptz,
    out attempts bigint, out refused bigint, out last_refused_at timestamptz, out at timestamptz)
    language plpgsql volatile
    as $$
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
$$;

-- ------------------------------------------------------------------------------------------------------------- enqueue

-- What is wrong with the arguments of `enqueue` that have limits of their own.
create function hapax.fault_of_job(
    guarantee text, due_at timestamptz, delay_ms bigint, payload_version bigint, priority bigint, max_attempts bigint,
    retry_base_ms bigint, retry_cap_ms bigint, retry_jitter_percent bigint, run_timeout_ms bigint, keep_ms bigint,
    keep_key_ms bigint) returns text[]
    -- Not in SQL: too long to become part of the caller's plan, it would be planned anew for each job.
    language plpgsql immutable parallel safe
    as $$
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
$$;

-- Takes the once key for a job. Nothing when the job has it now; else the job that has it already, this one included.
create function hapax.take_key_for_job(
    scope text, value text, fingerprint bytea, keep_ms bigint, made_at timestamptz, mine uuid,
    out holder uuid, out is_done boolean)
    language plpgsql volatile
    as $$
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
$$;

-- A job in the caller's transaction: there once that commits, never if it does not. All but the first two arguments are
-- best given by name. `id` is that of the job that stands for the work; `existed` says that another had the once key
-- before, and `done` that it took effect already. The same id again is the same job and changes nothing.
create function hapax.enqueue(
    kind text,
    payload text,                                   -- one JSON value, kept byte for byte
    queue text default 'default',
    once text default null,                         -- once key
    due_at timestamptz default null,                -- not before then, or
    delay_ms bigint default null,                   -- not before so much time has passed
    priority bigint default 0,                      -- smaller runs first
    inout id uuid default null,                     -- made here if it is not given
    payload_version bigint default 1,
    once_scope text default null,                   -- the kind
    fingerprint bytea default null,                 -- SHA-256 of what the work is: of the payload
    made_at timestamptz default null,               -- when the message behind the key was made
    guarantee text default 'at_least_once',
    max_attempts bigint default 20,
    retry_base_ms bigint default 1000,
    retry_cap_ms bigint default 3600000,
    retry_jitter_percent bigint default 20,
    run_timeout_ms bigint default 600000,
    keep_ms bigint default 604800000,               -- the job, once it has ended
    keep_key_ms bigint default 2592000000,          -- its once key, once it is done
    out existed boolean,
    out done boolean)
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    as $$
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
$$;

-- ---------------------------------------------------------------------------------------------------------- bare keys

-- An inbox: true for the first transaction that commits with this key, which is done from then on and for `keep_ms`;
-- false for a duplicate, which is counted. Whoever comes while that transaction is open waits for its end. The key is
-- that of the program's verb `once`, with the same scope.
create function hapax.once(
    key text,
    scope text default 'inbox',
    fingerprint bytea default null,                 -- SHA-256 of what the work is
    keep_ms bigint default 2592000000,
    made_at timestamptz default null,               -- when the message behind the key was made
    holder text default null,                       -- who does the work, for people: the application's name
    result text default null) returns boolean
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    as $$
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
$$;

-- ------------------------------------------------------------------------------------------------- fences and finishes

-- Whether this is the current run of its job. If so no other can take the job over before this transaction ends; its
-- own heartbeats, and its finish as done, do not wait for it.
create function hapax.fence_ok(job uuid, fence bigint) returns boolean
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    as $$
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
$$;

-- Whether this is the last fence of a permit. If so nobody else is granted it before this transaction ends; a renewal
-- does not wait for it. A lease that ran out but that nobody took over still counts.
create function hapax.lock_ok(name text, slot bigint, fence bigint) returns boolean
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    as $$
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
$$;

-- Ends a run as done, together with all else in this transaction; its once key with it. False for a run that is not the
-- current one: roll back then, since what this transaction did is another's to do.
create function hapax.finish(job uuid, fence bigint, result text default null) returns boolean
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    as $$
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
$$;
