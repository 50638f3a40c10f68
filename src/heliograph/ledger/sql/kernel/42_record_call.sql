-- Recording inline calls: an owner commits the result of an effect after it has happened (K13).

-- record_call: commit the results of inline calls.
--   p_items: [{agent_id, turn_id, epoch, call_id, status, result, error, signals: [draft], signals_emitted, phase,
--   used, rate_tokens, taint, open_as, terminates, recording, intents}]. status: success with result; failed, timeout,
--   unknown or canceled with error.
--   signals, signals_emitted, phase: as in append; no other signal logs the result. used: how much of its reservation
--   the call used, by kind. A kind that is not named counts as used up; of a canceled call as unused, because its
--   effect did not happen. rate_tokens: the actual tokens of a model call, which replace its estimate in the buckets of
--   kind model_tokens. taint: the untrusted sources that the turn has read by now, if this call read some; without it
--   those of begin_call remain. open_as: {step_id, tool, taint} of a call without an effect of its own, which nobody
--   begins: one that is not to run at all, or the end of a phase. It is opened and recorded in this commit.
--   terminates: see suspend; it holds from now on, also if the owner is lost. recording: see _recording_of.
--   intents: the calls that the owner makes next, as items of begin_call without their owner. They begin in this
--   commit, after all results of p_items are recorded, as if begin_call followed at once.
--   Returns [{turn_id, call_id, outcome, first_seq, begun}] in the order of p_items. 'ok'. 'duplicate': a result was
--   recorded before; the result writes nothing, but the intents begin. begun: the answers of begin_call to the intents.
--   'stale'. 'rejected' with code and message: payload_too_large, not_begun, not_inline, too_many_waits, reserved_name,
--   invalid_signal.
--   raises: see _enter; 22023 for an unknown status, a missing error, an invalid call or phase; see begin_call
--   locks:  the heads, then the runs, then the buckets
create function heliograph.record_call(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_bytes constant integer := heliograph._check_json(p_items);
    v_agents text[];
    v_runs text[];
    v_places integer[];
    v_parts jsonb := '{}';  -- {place: part of its answer}
    v_intents jsonb;
    v_corrects constant boolean := jsonb_path_exists(p_items, '$[*].rate_tokens.type() ? (@ != "null")');
begin
    perform heliograph._check_results(p_items);
    select array_agg(i.item ->> 'agent_id' order by i.n),
           array_agg(heliograph._run_of(i.item ->> 'agent_id') order by i.n)
      into v_agents, v_runs
      from jsonb_array_elements(p_items) with ordinality i (item, n);
    perform from heliograph.agent_state_head where project_id = p_project and agent_id = any (v_agents)
      order by agent_id for update;
    perform from heliograph.runs where project_id = p_project and run_id = any (v_runs) order by run_id for update;
    if jsonb_path_exists(p_items, '$[*].intents[*]') then
        v_intents := heliograph._intents_of(p_items);
        perform heliograph._check_intents(v_intents);
    end if;
    if v_corrects then
        perform heliograph._check_rate_tokens(p_items);
    end if;
    if v_corrects or v_intents is not null then
        perform heliograph._lock_taken(p_project, p_items, v_intents);
    end if;
    for v_places in select places from heliograph._rounds(v_runs) order by places loop
        v_parts := v_parts || heliograph._record(p_project, p_items, v_places, v_bytes, v_limits, p_now);
    end loop;
    if v_intents is not null then
        v_parts := heliograph._begin_next(p_project, p_items, v_intents, v_parts, v_limits, p_now);
    end if;
    return coalesce((
        select jsonb_agg(jsonb_build_object('turn_id', i.item -> 'turn_id', 'call_id', i.item -> 'call_id')
                         || (v_parts -> i.n::text) order by i.n)
          from jsonb_array_elements(p_items) with ordinality i (item, n)), '[]');
end $$;

-- _intents_of: the intents of these items, as items of begin_call.
--   raises: 22023 naming the field
create function heliograph._intents_of(p_items jsonb) returns jsonb
    language plpgsql immutable as $$
declare
    v_intents constant jsonb := jsonb_path_query_array(p_items, '$[*].intents ? (@.type() != "null")[*]');
begin
    if jsonb_path_exists(v_intents, '$[*] ? (@.type() != "object")') then
        raise exception using errcode = '22023', message = 'p_items[].intents must be a list of objects';
    end if;
    perform heliograph._check_keys('p_items[].intents[]', v_intents,
        '{call_id,step_id,tool,effect,timeout_seconds,taint,is_trusted,reserve,circuit_breaker,rates}');
    return (select jsonb_agg(w.intent || jsonb_build_object(
                       'agent_id', i.item -> 'agent_id', 'turn_id', i.item -> 'turn_id', 'epoch', i.item -> 'epoch')
                             order by i.n, w.n)
              from jsonb_array_elements(p_items) with ordinality i (item, n)
             cross join lateral jsonb_array_elements(nullif(i.item -> 'intents', 'null')) with ordinality
                   w (intent, n));
end $$;

-- _begin_next: begin the calls whose intents record_call has, apart from those of items that are stale or rejected.
--   p_intents: see _intents_of. p_parts: {place: part of the answer of its item}. Returns p_parts with the key begun.
--   The caller holds the heads, the runs and the buckets.
create function heliograph._begin_next(
    p_project text, p_items jsonb, p_intents jsonb, p_parts jsonb, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_places bigint[];  -- of the item of each intent that begins
    v_intents jsonb;
    v_answers jsonb;
begin
    select array_agg(e.place order by e.n), jsonb_agg(p_intents -> (e.n::integer - 1) order by e.n)
      into v_places, v_intents
      from (select i.n as place, row_number() over (order by i.n, w.n) as n
              from jsonb_array_elements(p_items) with ordinality i (item, n)
             cross join lateral jsonb_array_elements(nullif(i.item -> 'intents', 'null')) with ordinality
                   w (intent, n)) e
     where p_parts -> e.place::text ->> 'outcome' in ('ok', 'duplicate');
    if v_intents is null then
        return p_parts;
    end if;
    v_answers := heliograph._begin(p_project, v_intents, p_limits, p_now);
    return p_parts || (
        select jsonb_object_agg(b.place, (p_parts -> b.place::text) || jsonb_build_object('begun', b.begun))
          from (select v_places[a.n] as place, jsonb_agg(a.item order by a.n) as begun
                  from jsonb_array_elements(v_answers) with ordinality a (item, n) group by 1) b);
end $$;

-- _check_results: reject items that record_call cannot take.
--   raises: 22023 naming the field
create function heliograph._check_results(p_items jsonb) returns void
    language plpgsql immutable as $$
begin
    perform heliograph._check_keys('p_items[]', p_items,
        '{agent_id,turn_id,epoch,call_id,status,result,error,signals,signals_emitted,phase,used,'
        'rate_tokens,taint,open_as,terminates,recording,intents}');
    perform heliograph._check_type('p_items[]', p_items, 'intents', 'array');
    perform heliograph._check_recordings('p_items[]', p_items);
    perform heliograph._check_type('p_items[]', p_items, 'taint', 'array');
    perform heliograph._check_type('p_items[]', p_items, 'terminates', 'boolean');
    if jsonb_path_exists(p_items, '$[*].used.type() ? (@ != "null")') then
        perform heliograph._check_amounts(p_items, 'used');
    end if;
    if jsonb_path_exists(p_items, '$[*].open_as.type() ? (@ != "null")') then
        perform heliograph._check_open_as(p_items);
    end if;
    if exists (select from jsonb_array_elements(p_items) i
                where not coalesce(i ->> 'status' in ('success', 'failed', 'timeout', 'unknown', 'canceled'), false)
                   or (i ->> 'status' <> 'success' and i ->> 'error' is null)) then
        raise exception using errcode = '22023', message =
            'status must be success, or failed, timeout, unknown or canceled with an error';
    elsif exists (select from jsonb_array_elements(p_items) i
                   where not coalesce(i ->> 'phase' in ('init', 'plan', 'act', 'reflect', 'terminate'), true)) then
        raise exception using errcode = '22023', message = 'phase must be init, plan, act, reflect or terminate';
    end if;
end $$;

-- _record: record the results of a round of record_call. p_bytes: see _exceeds.
--   Returns {place: part of its answer}.
--   The caller holds the heads, the runs and the buckets.
create function heliograph._record(
    p_project text, p_items jsonb, p_places integer[], p_bytes integer, p_limits heliograph.project_limits,
    p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_parts jsonb;
    v_ok integer[];
    v_logged text[];  -- the runs with new signals
    v_far jsonb;
    v_changes_heads boolean;
    v_opens boolean;
    v_corrects boolean;
    v_settles boolean;
    v_circuits jsonb;
begin
    with item as materialized (
        select * from heliograph._judge_record(p_project, p_items, p_places, p_bytes, p_limits)
    ), run as (
        update heliograph.runs r
           set signal_seq = r.signal_seq + i.written, pending_reactions = r.pending_reactions + i.pending,
               version = r.version + sign(i.pending)::integer, updated_at = p_now
          from item i where r.ctid = i.run_at and i.written > 0
    ), logged as (
        insert into heliograph.signals
            (project_id, run_id, seq, count, entries, agent_turn_id, at, is_pending, recording)
        select p_project, run_id, base + 1, written, signals, turn_id, p_now, pending > 0, recording
          from item where written > 0 order by run_id
    ), lease as (
        update heliograph.leases l set signals_emitted = l.signals_emitted + i.written, last_append_seq = i.base + 1
          from item i where l.ctid = i.lease_at and i.written > 0
    ), card as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, card_id, output_box_id, turn_id, epoch, 'tool.result',
               case when heliograph._exceeds(value, p_bytes, p_limits.card_bytes_max)
                    then heliograph._put_blob(p_project, content, p_now) else content end, p_now
          from item where rejection is null order by n
    ), wait as (
        update heliograph.turn_waiting_tools w
           set state = 'resolved', status = i.status, result_card_id = i.card_id, resolved_position = i.place,
               resolved_at = p_now, resolved_seq = i.base + i.written, taint = i.taint
          from item i where w.ctid = i.wait_at and i.rejection is null
    )
    select jsonb_object_agg(i.n, coalesce(i.rejection, jsonb_build_object('outcome', 'ok', 'first_seq', i.first_seq))),
           array_agg(i.n order by i.n) filter (where i.rejection is null),
           array_agg(i.run_id order by i.run_id) filter (where i.written > 0),
           jsonb_agg(jsonb_build_array(i.run_id, i.base) order by i.run_id) filter (where i.is_far),
           bool_or(i.rejection is null and i.changes_head), bool_or(i.rejection is null and i.opens),
           bool_or(i.rejection is null and i.corrects), bool_or(i.rejection is null and i.settles),
           jsonb_agg(i.circuit order by i.n) filter (where i.rejection is null and i.circuit is not null)
      into v_parts, v_ok, v_logged, v_far, v_changes_heads, v_opens, v_corrects, v_settles, v_circuits
      from item i;
    if v_logged is not null then
        perform heliograph._feed_runs(p_project, v_logged);
    end if;
    if v_far is not null then
        perform heliograph._checkpoint(p_project, f ->> 0, (f ->> 1)::bigint) from jsonb_array_elements(v_far) f;
    end if;
    if v_changes_heads then
        update heliograph.agent_state_head h
           set phase = coalesce(i.item ->> 'phase', h.phase),
               terminates = h.terminates or coalesce((i.item ->> 'terminates')::boolean, false)
          from (select e.item, x.at from unnest(v_ok) u (n)
                 cross join lateral (select p_items -> (u.n - 1) as item offset 0) e
                 cross join lateral (
                       select y.ctid as at from heliograph.agent_state_head y
                        where y.project_id = p_project and y.agent_id = e.item ->> 'agent_id' offset 0) x) i
         where h.ctid = i.at
           and (h.phase <> i.item ->> 'phase' or (i.item ->> 'terminates')::boolean and not h.terminates);
    end if;
    if v_opens then
        perform heliograph._open_recorded(p_project, p_items, v_ok, v_parts, p_now);
    end if;
    if v_circuits is not null then
        perform heliograph._count_circuits(p_project, v_circuits, p_now);
    end if;
    if v_corrects then
        perform heliograph._correct_tokens(p_project, p_items -> (n - 1), p_now)
           from unnest(v_ok) n where p_items -> (n - 1) ->> 'rate_tokens' is not null;
    end if;
    if v_settles then
        perform heliograph._settle_recorded(p_project, p_items -> (n - 1)) from unnest(v_ok) n;
    end if;
    return v_parts;
end $$;

-- _judge_record: the items of a round of record_call, each with its rejection, or else null, and what its result
--   changes. written: how many of its signals are new, after position base. is_far: its run may need a checkpoint.
--   The caller holds the heads and the runs.
create function heliograph._judge_record(
    p_project text, p_items jsonb, p_places integer[], p_bytes integer, p_limits heliograph.project_limits
) returns table (
    n integer, rejection jsonb, turn_id text, epoch bigint, status text, run_id text, output_box_id text, run_at tid,
    wait_at tid, lease_at tid, base bigint, written integer, pending integer, first_seq bigint, signals jsonb,
    recording text, is_far boolean, card_id text, value jsonb, content jsonb, place integer, taint text[],
    changes_head boolean, opens boolean, corrects boolean, settles boolean, circuit jsonb
) language sql stable as $$
    select u.n, v.rejection, i.turn_id, i.epoch, i.status, h.run_id, t.output_box_id, r.at, w.at, l.at, r.signal_seq,
           s.written, d.pending,
           case when s.written > 0 then r.signal_seq + 1 when i.drafts > 0 then l.last_append_seq end,
           i.item -> 'signals', heliograph._recording_of(i.item),
           r.pending_reactions + d.pending = 0
           and heliograph._crosses_checkpoint(r.signal_seq, r.signal_seq + s.written),
           heliograph._result_id(i.turn_id, i.call_id), c.value,
           jsonb_build_object('call_id', i.call_id, 'tool', c.tool, 'status', i.status, 'trust',
                              case when c.is_trusted and c.taint is null then 'trusted' else 'untrusted' end,
                              case i.status when 'success' then 'output' else 'error' end, c.value),
           o.last + 1, c.taint,
           h.phase <> i.item ->> 'phase' or (i.item ->> 'terminates')::boolean and not h.terminates, w.at is null,
           i.item ->> 'rate_tokens' is not null, w.reserved is not null or i.item ->> 'used' is not null,
           case when w.circuit is not null
                then jsonb_build_object('turn_id', i.turn_id, 'call_id', i.call_id, 'status', i.status,
                                        'circuit', w.circuit,
                                        'is_recoverable', c.value ->> 'recoverable' is distinct from 'false') end
      from unnest(p_places) u (n)
     cross join lateral (select p_items -> (u.n - 1) as item offset 0) e
     cross join lateral (
           select e.item, e.item ->> 'agent_id' as agent_id, e.item ->> 'turn_id' as turn_id,
                  (e.item ->> 'epoch')::bigint as epoch, e.item ->> 'call_id' as call_id, e.item ->> 'status' as status,
                  coalesce(jsonb_array_length(e.item -> 'signals'), 0) as drafts offset 0) i
      left join lateral (
           select x.agent_id, x.run_id, x.phase, x.terminates from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = i.agent_id and x.status = 'running'
              and x.active_agent_turn_id = i.turn_id and x.turn_epoch = i.epoch offset 0) h on true
      left join lateral (
           select x.output_box_id from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = i.turn_id offset 0) t on true
      left join lateral (
           select x.ctid as at, x.kind, x.state, x.tool, x.is_trusted, x.taint, x.reserved, x.circuit
             from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = i.turn_id and x.tool_call_id = i.call_id offset 0) w
        on true
      left join lateral (
           select coalesce(max(x.resolved_position), 0) as last, count(*) as known from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = i.turn_id offset 0) o on true
      left join lateral (
           select x.ctid as at, x.signal_seq, x.pending_reactions from heliograph.runs x
            where x.project_id = p_project and x.run_id = h.run_id offset 0) r on true
      left join lateral (
           select x.ctid as at, x.last_append_seq,
                  coalesce(x.signals_emitted > (i.item ->> 'signals_emitted')::integer, false) as has_drafts
             from heliograph.leases x
            where i.drafts > 0 and x.project_id = p_project and x.agent_id = i.agent_id
              and x.turn_epoch = i.epoch offset 0) l on true
     cross join lateral (
           select case i.status when 'success' then i.item -> 'result' else i.item -> 'error' end as value,
                  coalesce(w.tool, i.item #>> '{open_as,tool}') as tool, coalesce(w.is_trusted, true) as is_trusted,
                  case when w.at is null then heliograph._taint(i.item -> 'open_as')
                       when i.item ? 'taint' then coalesce(heliograph._taint(i.item), w.taint) else w.taint end as taint
           offset 0) c
     cross join lateral (
           select case
                  when h.agent_id is null then '{"outcome": "stale"}'
                  when w.at is null and coalesce(jsonb_typeof(i.item -> 'open_as'), 'null') = 'null'
                  then heliograph._rejection('not_begun', format('call %s was not begun: begin_call comes first',
                                                                 i.call_id))
                  when w.at is null and o.known >= p_limits.waits_max
                  then heliograph._reject_waits(o.known + 1, p_limits.waits_max)
                  when w.kind <> 'inline' then heliograph._rejection('not_inline', format(
                      'the turn waits for call %s of kind %s: report its result instead', i.call_id, w.kind))
                  when w.state <> 'open' then '{"outcome": "duplicate"}'
                  else coalesce(
                      case when p_bytes > p_limits.result_bytes_max
                           then heliograph._reject_result(i.item, p_limits) end,
                      heliograph._reject_names(i.item),
                      case when heliograph._exceeds(i.item, p_bytes, p_limits.payload_bytes_max)
                           then heliograph._reject_signals(i.item -> 'signals', p_limits) end,
                      case when i.drafts > 0
                           then heliograph._reject_drafts(h.run_id, r.signal_seq, i.item -> 'signals') end) end
                  as rejection offset 0) v
     cross join lateral (
           select case when v.rejection is null and not coalesce(l.has_drafts, false) then i.drafts else 0
                  end as written offset 0) s
     cross join lateral (
           select case when s.written > 0
                       then jsonb_array_length(jsonb_path_query_array(i.item -> 'signals',
                                                                      '$[*] ? (@.is_pending == true)')) else 0
                  end as pending offset 0) d
$$;

-- _open_recorded: open calls that this commit has recorded; see open_as of record_call. Their effects are pure: nothing
--   happened, so they could be repeated. p_places: of the items whose results are recorded. p_parts: the parts of their
--   answers. The caller holds the heads and the runs.
create function heliograph._open_recorded(
    p_project text, p_items jsonb, p_places integer[], p_parts jsonb, p_now timestamptz
) returns void language plpgsql as $$
begin
    with opened as (
        insert into heliograph.turn_waiting_tools
            (project_id, agent_turn_id, tool_call_id, agent_id, run_id, step_id, tool, kind, effect, epoch, taint,
             is_trusted, opened_at, opened_seq, state, status, result_card_id, resolved_position, resolved_at,
             resolved_seq)
        select p_project, i.item ->> 'turn_id', i.item ->> 'call_id', h.agent_id, h.run_id,
               i.item #>> '{open_as,step_id}', i.item #>> '{open_as,tool}', 'inline', 'pure', h.turn_epoch,
               heliograph._taint(i.item -> 'open_as'), true, p_now,
               coalesce((p_parts -> u.n::text ->> 'first_seq')::bigint, r.signal_seq + 1), 'resolved',
               i.item ->> 'status', heliograph._result_id(i.item ->> 'turn_id', i.item ->> 'call_id'), o.last + 1,
               p_now, r.signal_seq
          from unnest(p_places) u (n)
         cross join lateral (select p_items -> (u.n - 1) as item offset 0) i
         cross join lateral (
               select x.agent_id, x.run_id, x.turn_epoch from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = i.item ->> 'agent_id' offset 0) h
         cross join lateral (
               select x.signal_seq from heliograph.runs x
                where x.project_id = p_project and x.run_id = h.run_id offset 0) r
         cross join lateral (
               select coalesce(max(x.resolved_position), 0) as last,
                      bool_or(x.tool_call_id = i.item ->> 'call_id') as is_known from heliograph.turn_waiting_tools x
                where x.project_id = p_project and x.agent_turn_id = i.item ->> 'turn_id' offset 0) o
         where not coalesce(o.is_known, false) order by u.n
        returning agent_turn_id, tool_call_id, run_id, agent_id
    )
    insert into heliograph.execution_edges
        (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, call_id, cause_id, created_at)
    select p_project, o.agent_turn_id, 'tool_call', 'request', o.run_id, o.agent_id, o.tool_call_id, h.parent_step_id,
           p_now
      from opened o
     cross join lateral (
           select heliograph._signal_id(x.run_id, x.activation_seq) as parent_step_id from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = o.agent_id offset 0) h
     order by o.agent_id, o.tool_call_id;
end $$;

-- _settle_recorded: settle the reservation of a recorded call, if it has one; see used of record_call.
--   The caller holds the head and the run.
create function heliograph._settle_recorded(p_project text, p_item jsonb) returns void
    language plpgsql as $$
begin
    perform heliograph._settle(p_project, p_item ->> 'turn_id', p_item ->> 'call_id',
               case p_item ->> 'status' when 'canceled'
                    then jsonb '{"tokens": 0, "micros": 0, "model_calls": 0, "tool_calls": 0}' else '{}' end
               || coalesce(nullif(p_item -> 'used', 'null'), '{}'));
end $$;
