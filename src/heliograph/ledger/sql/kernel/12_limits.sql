-- Limits of a project, and the checks of requests against them (S11, S12). A request above a limit has the outcome
-- 'rejected', with a code.

-- _limits: the limits in force: those of the project, or else these defaults.
create function heliograph._limits(p_project text) returns heliograph.project_limits
    language plpgsql stable as $$
declare
    v_own heliograph.project_limits;
begin
    select * into v_own from heliograph.project_limits where project_id = p_project;
    return row(p_project, coalesce(v_own.queue_max, 1000), coalesce(v_own.depth_max, 20),
               coalesce(v_own.fan_out_max, 1000), coalesce(v_own.cards_max, 1000), coalesce(v_own.waits_max, 1000),
               coalesce(v_own.payload_bytes_max, 65536), coalesce(v_own.card_bytes_max, 262144),
               coalesce(v_own.result_bytes_max, 1048576), coalesce(v_own.blob_bytes_max, 16777216), v_own.running_max,
               coalesce(v_own.deferrals_max, 3), coalesce(v_own.memories_max, 10000),
               coalesce(v_own.memory_bytes_max, 16384), v_own.dispatch_seconds_max);
end $$;

-- _rejection: the part of an answer that rejects an item.
create function heliograph._rejection(p_code text, p_message text) returns jsonb
    language plpgsql immutable as $$
begin
    return jsonb_build_object('outcome', 'rejected', 'code', p_code, 'message', p_message);
end $$;

-- _over_limit: the rejection of an item above a limit of the project. p_problem: the item and its size. p_remedy: how
--   the caller stays below the limit. p_limit: the name of the limit, for operators, who may raise it.
create function heliograph._over_limit(
    p_code text, p_problem text, p_max bigint, p_remedy text, p_limit text
) returns jsonb language plpgsql immutable as $$
begin
    return heliograph._rejection(p_code, p_problem || '; at most ' || p_max::text || ' are allowed: ' || p_remedy
               || ', or raise the limit with helio db limits ' || p_limit || '=NUMBER');
end $$;

-- A limit in bytes counts the text of a JSON value as PostgreSQL writes it. No part of a request is longer than the
-- request. So the length of the request, which _check_json returns, decides most checks without the text of any part.

-- _exceeds: whether a part of a request has more than p_limit bytes. p_bytes: the length of the request.
create function heliograph._exceeds(p_part jsonb, p_bytes integer, p_limit integer) returns boolean
    language sql immutable as $$
    select p_bytes > p_limit and octet_length(p_part::text) > p_limit
$$;

-- _payload_max: the maximum size of the payload of a signal of this name, in bytes. Signals that only the runtime emits
--   (heliograph.signals.names) contain states, outputs and texts, which have limits of their own. They may be as large
--   as a blob.
create function heliograph._payload_max(p_name text, p_limits heliograph.project_limits) returns integer
    language sql immutable as $$
    select case when heliograph._is_reserved(p_name) then greatest(p_limits.payload_bytes_max, p_limits.blob_bytes_max)
        else p_limits.payload_bytes_max end
$$;

-- _reject_signals: null, or the rejection of a signal that is too large.
create function heliograph._reject_signals(p_signals jsonb, p_limits heliograph.project_limits) returns jsonb
    language sql stable as $$
    select heliograph._over_limit(
               'payload_too_large', format('the payload of %s has %s bytes', e.s ->> 'name', z.bytes), z.bytes_max,
               'store the content elsewhere, for example in a box, and send its id',
               case when z.bytes_max > p_limits.payload_bytes_max then 'blob_bytes_max' else 'payload_bytes_max' end)
      from jsonb_array_elements(p_signals) with ordinality e (s, n)
     cross join lateral (
           select octet_length(nullif(e.s -> 'payload', 'null')::text) as bytes,
                  heliograph._payload_max(e.s ->> 'name', p_limits) as bytes_max) z
     where z.bytes > z.bytes_max order by e.n limit 1
$$;

-- _reject_drafts: null, or the rejection of the first invalid draft. p_base: the position of the run's newest signal.
--   The parent of a draft is the index of an earlier one of this list, the id of a signal, or a position of the run's
--   log as a text; only the first signal of a run has none.
create function heliograph._reject_drafts(p_run_id text, p_base bigint, p_drafts jsonb) returns jsonb
    language plpgsql stable as $$
declare
    v_draft jsonb;
    v_parent text;
    v_wrong text;
    v_is_known boolean;
begin
    for n in 0 .. case when jsonb_typeof(p_drafts) = 'array' then jsonb_array_length(p_drafts) else 0 end - 1 loop
        v_draft := p_drafts -> n;
        v_parent := v_draft ->> 'parent';
        if heliograph._is_usual_draft(v_draft) is not true then
            v_wrong := heliograph._wrong_draft(n, v_draft);
        end if;
        if v_parent is null or p_base + n = 0 then
            v_is_known := v_parent is null and p_base + n = 0;
        elsif jsonb_typeof(v_draft -> 'parent') = 'number' then
            v_is_known := v_parent::numeric between 0 and n - 1 and strpos(v_parent, '.') = 0;
        else
            v_is_known := jsonb_typeof(v_draft -> 'parent') = 'string'
                          and heliograph._is_known_parent(p_run_id, p_base, v_parent);
        end if;
        if v_wrong is null and not v_is_known then
            v_wrong := format('the parent of signal %s must be an earlier signal: its id, or its index in this request',
                              left(v_draft ->> 'name', 80));
        end if;
        if v_wrong is not null then
            return heliograph._rejection('invalid_signal', v_wrong);
        end if;
    end loop;
    return null;
end $$;

-- _reject_content: null, or the rejection of content that is too large even for a blob.
create function heliograph._reject_content(p_content jsonb, p_limits heliograph.project_limits) returns jsonb
    language sql stable as $$
    select heliograph._over_limit(
               'payload_too_large', format('a card has %s bytes', octet_length(p_content::text)),
               p_limits.blob_bytes_max, 'store the content elsewhere and put its location in the card',
               'blob_bytes_max')
     where octet_length(p_content::text) > p_limits.blob_bytes_max
$$;

-- _reject_result: null, or the rejection of a result or an error that is too large.
create function heliograph._reject_result(p_item jsonb, p_limits heliograph.project_limits) returns jsonb
    language sql immutable as $$
    -- measured as text, because clients receive text: a stored number of ten bytes may have 100,000 digits
    select heliograph._over_limit(
               'payload_too_large', format('the result of call %s has %s bytes', p_item ->> 'call_id', r.bytes),
               p_limits.result_bytes_max, 'store it elsewhere and report its location', 'result_bytes_max')
      from (select greatest(octet_length((p_item -> 'result')::text),
                            octet_length((p_item -> 'error')::text)) as bytes) r
     where r.bytes > p_limits.result_bytes_max
$$;

-- _reject_fan_out: null, or the rejection of a call that wakes too many agents.
create function heliograph._reject_fan_out(p_count integer, p_limits heliograph.project_limits) returns jsonb
    language sql stable as $$
    select case when p_count > p_limits.fan_out_max then heliograph._over_limit(
               'fan_out', format('the request wakes %s turns at once', p_count), p_limits.fan_out_max,
               'emit fewer signals at once', 'fan_out_max') end
$$;

-- _reject_depth: null, or the rejection of turns that are too many delegations deep, in other deployments too.
create function heliograph._reject_depth(p_activations jsonb, p_limits heliograph.project_limits) returns jsonb
    language sql stable as $$
    select heliograph._over_limit('recursion_depth_exceeded', format('the turn would be %s delegations deep', deepest),
                                  p_limits.depth_max, 'do the work without a further delegation', 'depth_max')
      from (select max((a ->> 'depth')::integer) as deepest from jsonb_array_elements(p_activations) a) d
     where deepest > p_limits.depth_max
$$;

-- _reject_waits: the rejection of a turn with too many calls.
create function heliograph._reject_waits(p_calls bigint, p_waits_max integer) returns jsonb
    language sql immutable as $$
    select heliograph._over_limit('too_many_waits', 'the turn would have ' || p_calls::text || ' calls', p_waits_max,
                                  'make fewer calls in one turn', 'waits_max')
$$;

-- _reject_activations: null, or the rejection of turns that are too many at once, or too many in the queue of one
--   agent. The caller holds the heads.
create function heliograph._reject_activations(
    p_project text, p_run_id text, p_activations jsonb, p_limits heliograph.project_limits
) returns jsonb language sql stable as $$
    select coalesce(heliograph._reject_fan_out(jsonb_array_length(p_activations), p_limits), (
    select heliograph._over_limit('queue_full', format('agent %s has %s turns waiting', w.agent, w.queued),
                                  p_limits.queue_max, 'try again when some have ended', 'queue_max')
      from (select m.agent, m.more,
                   (select count(*) from heliograph.agent_turns t
                     where t.project_id = p_project and t.state = 'queued'
                       and t.agent_id = p_run_id || '/' || m.agent) as queued
              from (select a ->> 'agent' as agent, count(*) as more
                      from jsonb_array_elements(p_activations) a group by 1) m) w
     where w.queued + w.more > p_limits.queue_max order by w.agent limit 1))
$$;

-- _blob_lock: the key of the advisory lock of a blob. It hashes a JSON list that begins with a name, so no
--   other blob and no other program hashes the same text.
create function heliograph._blob_lock(p_project text, p_blob_id text) returns bigint
    language sql immutable as $$
    select hashtextextended(jsonb_build_array('heliograph.blobs', p_project, p_blob_id)::text, 0)
$$;

-- _put_blob: store content as a blob unless it is one already; returns the pointer that a card keeps instead.
--   locks:  the blob against prune
create function heliograph._put_blob(p_project text, p_content jsonb, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_text text := p_content::text;
    v_blob_id text := 'sha256:' || encode(sha256(convert_to(v_text, 'UTF8')), 'hex');
begin
    -- locked, so that prune does not remove it before the card exists
    perform from heliograph.blobs where project_id = p_project and blob_id = v_blob_id order by blob_id for key share;
    if not found then
        -- Two transactions that store the same blobs in different orders would wait for each other. So none waits:
        -- while another transaction is storing this blob, this one stores a copy.
        if not pg_try_advisory_xact_lock(heliograph._blob_lock(p_project, v_blob_id)) then
            v_blob_id := v_blob_id || ':' || pg_current_xact_id();
        end if;
        insert into heliograph.blobs (project_id, blob_id, bytes, content, created_at)
        values (p_project, v_blob_id, octet_length(v_text), p_content, p_now)
        on conflict do nothing;
    end if;
    return jsonb_build_object('$blob', v_blob_id, 'bytes', octet_length(v_text));
end $$;

-- _store_content: content as a card keeps it: itself, or a pointer to its blob if it has more than p_limit bytes or
--   looks like a pointer. p_bytes: see _exceeds. PostgreSQL inlines it, so small content costs no call.
--   locks:  see _put_blob
create function heliograph._store_content(
    p_project text, p_content jsonb, p_bytes integer, p_limit integer, p_now timestamptz
) returns jsonb language sql as $$
    select case when heliograph._exceeds(p_content, p_bytes, p_limit) or p_content ? '$blob'
                then heliograph._put_blob(p_project, p_content, p_now) else p_content end
$$;

-- _content: the content of a card, from the card or its blob.
create function heliograph._content(p_project text, p_content jsonb) returns jsonb
    language sql stable as $$
    select case when jsonb_typeof(p_content) = 'object' and p_content ? '$blob' then coalesce(
        (select b.content from heliograph.blobs b
          where b.project_id = p_project and b.blob_id = p_content ->> '$blob'), p_content) else p_content end
$$;

-- set_limits: set limits of a project. p_limits: {name: number, or null for the default}. Limits that p_limits does
--   not name keep their values. Only an operator may call this.
--   Returns all limits in force.
--   raises: see _enter; 22023 for an unknown limit, 23514 for a number out of range
--   locks:  the project's row
create function heliograph.set_limits(p_project text, p_limits jsonb) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_names constant text[] := array(
        select jsonb_object_keys(to_jsonb(heliograph._limits(p_project)) - 'project_id'));
begin
    perform heliograph._check_json(p_limits);
    if jsonb_typeof(p_limits) <> 'object' then
        raise exception using errcode = '22023', message = 'p_limits must be an object {name: number}';
    elsif p_limits - v_names <> '{}' then
        raise exception using errcode = '22023', message = format(
            'there is no limit %s: helio db limits lists all',
            (select to_jsonb(left(min(k collate "C"), 60)) from jsonb_object_keys(p_limits - v_names) k));
    end if;
    insert into heliograph.project_limits (project_id) values (p_project) on conflict do nothing;
    update heliograph.project_limits l
       set (queue_max, depth_max, fan_out_max, cards_max, waits_max, payload_bytes_max, card_bytes_max,
            result_bytes_max, blob_bytes_max, running_max, deferrals_max, memories_max, memory_bytes_max,
            dispatch_seconds_max) =
           (select n.queue_max, n.depth_max, n.fan_out_max, n.cards_max, n.waits_max, n.payload_bytes_max,
                   n.card_bytes_max, n.result_bytes_max, n.blob_bytes_max, n.running_max, n.deferrals_max,
                   n.memories_max, n.memory_bytes_max, n.dispatch_seconds_max
              from jsonb_populate_record(l, p_limits) n)
     where l.project_id = p_project;
    return to_jsonb(heliograph._limits(p_project)) - 'project_id';
end $$;
