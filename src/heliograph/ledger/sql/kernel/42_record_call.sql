-- Recording inline calls: an owner commits the result of an effect after it has happened (K13).

-- record_call: commit the results of inline calls.
--   p_items: {agent_id, turn_id, epoch, call_id, status, result, error, signals: [draft], signals_emitted, phase, used,
--   rate_tokens, taint, open_as, terminates, recording, intents}, as one array for each key. status: success with
--   result; failed, timeout, unknown or canceled with error.
--   signals, signals_emitted, phase: as in append; no other signal logs the result. used: how much of its reservation
--   the call used, by kind. A kind that is not named counts as used up; of a canceled call as unused, because its
--   effect did not happen. rate_tokens: the actual tokens of a model call, which replace its estimate in the buckets of
--   kind model_tokens. taint: the untrusted sources that the turn has read by now, if this call read some; without it
--   those of begin_call remain. open_as: {step_id, tool, taint} of a call without an effect of its own, which is
--   never begun: one that is not to run at all, or the end of a phase. It is opened and recorded in this commit.
--   terminates: see suspend; it holds from now on, also if the owner is lost. recording: see _recording_of.
--   intents: the calls that the owner makes next, as items of begin_call without their owner. They begin in this
--   commit, after all results are recorded, as if begin_call followed at once.
--   Returns rows {turn_id, call_id, outcome, first_seq, code, message, begun} in the order of the items. 'ok'.
--   'duplicate': a result was recorded before; the result writes nothing, but the intents begin. begun: the answers of
--   begin_call to the intents. 'stale'. 'rejected' with code and message: payload_too_large, not_begun, not_inline,
--   too_many_waits, reserved_name, invalid_signal.
--   raises: see _enter; 22023 for arrays of the wrong shape, an unknown status, a missing error, an invalid call or
--           phase; see begin_call
--   locks:  the heads, then the runs, then the buckets
create function heliograph.record_call(
    p_project text, p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_call_id text[], p_status text[],
    p_result jsonb[], p_error jsonb[], p_signals jsonb[], p_signals_emitted bigint[], p_phase text[], p_used jsonb[],
    p_rate_tokens bigint[], p_taint jsonb[], p_open_as jsonb[], p_terminates boolean[], p_recording jsonb[],
    p_intents jsonb[], p_now timestamptz
) returns table (
    turn_id text, call_id text, outcome text, first_seq bigint, code text, message text, begun jsonb
) language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_runs constant text[] := heliograph._runs_of(p_agent_id);
    v_bytes integer;
    v_intents heliograph.new_call[]; v_intended_by integer[];  -- the place of the item of each intent
    v_places integer[];
    v_round heliograph.judged_result[];
    v_run_at tid[]; v_base bigint[]; v_written integer[]; v_pending integer[];  -- of the results of a round
    v_results heliograph.judged_result[] := '{}';
    v_begun jsonb[];
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_agent_id), heliograph._shape(p_turn_id), heliograph._shape(p_epoch),
        heliograph._shape(p_call_id), heliograph._shape(p_status), heliograph._shape(p_result),
        heliograph._shape(p_error), heliograph._shape(p_signals), heliograph._shape(p_signals_emitted),
        heliograph._shape(p_phase), heliograph._shape(p_used), heliograph._shape(p_rate_tokens),
        heliograph._shape(p_taint), heliograph._shape(p_open_as), heliograph._shape(p_terminates),
        heliograph._shape(p_recording), heliograph._shape(p_intents)]);
    v_bytes := heliograph._check_columns(p_result || p_error || p_signals || p_used || p_taint || p_open_as
                                         || p_recording || p_intents);
    perform heliograph._check_results(p_call_id, p_status, p_error, p_used, p_rate_tokens, p_taint, p_open_as);
    perform heliograph._check_phases(p_phase);
    perform heliograph._check_recorded(p_recording);
    perform heliograph._lock_heads(p_project, p_agent_id);
    perform heliograph._lock_runs(p_project, v_runs);
    if array_remove(p_intents, null) <> '{}' then
        select i.intents, i.places into v_intents, v_intended_by
          from heliograph._intents_of(p_agent_id, p_turn_id, p_epoch, p_intents) i;
        perform heliograph._check_new_calls(v_intents);
    end if;
    if v_intents is not null or array_remove(p_rate_tokens, null) <> '{}' then
        perform heliograph._lock_taken(p_project, p_turn_id, p_call_id, p_rate_tokens, v_intents);
    end if;
    for v_places in select places from heliograph._rounds(v_runs) order by places loop
        select array_agg(row(j.*)::heliograph.judged_result), array_agg(j.run_at), array_agg(j.base),
               array_agg(j.written), array_agg(j.pending)
          into v_round, v_run_at, v_base, v_written, v_pending
          from (select * from heliograph._judge_results(
                    p_project, v_places, v_runs, p_agent_id, p_turn_id, p_epoch, p_call_id, p_status, p_result, p_error,
                    p_signals, p_signals_emitted, p_phase, p_taint, p_open_as, p_terminates, v_bytes, v_limits) x
                 order by x.place) j;
        if array_remove(v_written, 0) <> '{}' then
            perform heliograph._log_drafts(p_project, v_places, v_runs, p_turn_id, p_signals, p_recording, v_run_at,
                                           v_base, v_written, v_pending, p_now);
            update heliograph.leases l
               set signals_emitted = l.signals_emitted + r.written, last_append_seq = r.first_seq
              from unnest(v_round) r where l.ctid = r.lease_at;
        end if;
        perform heliograph._record(p_project, v_round, p_used, p_rate_tokens, v_bytes, v_limits, p_now);
        v_results := v_results || v_round;
    end loop;
    if v_intents is not null then
        v_begun := heliograph._begin_next(p_project, v_intents, v_intended_by, v_results, v_limits, p_now);
    end if;
    return query
    select r.turn_id, r.call_id, coalesce(r.rejection ->> 'outcome', 'ok'), r.first_seq, r.rejection ->> 'code',
           r.rejection ->> 'message', v_begun[r.place]
      from unnest(v_results) r order by r.place;
end $$;

-- _intents_of: the intents of these items, and the place of the item of each; null for none.
--   raises: 22023 naming the field
create function heliograph._intents_of(
    p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_intents jsonb[], out intents heliograph.new_call[],
    out places integer[]
) language plpgsql immutable as $$
declare
    v_intents constant jsonb := jsonb_path_query_array(to_jsonb(p_intents), '$[*] ? (@.type() != "null")[*]');
begin
    if exists (select from unnest(p_intents) i where jsonb_typeof(i) not in ('array', 'null'))
       or jsonb_path_exists(v_intents, '$[*] ? (@.type() != "object")') then
        raise exception using errcode = '22023', message = 'p_items[].intents must be a list of objects';
    end if;
    perform heliograph._check_keys('p_items[].intents[]', v_intents,
        '{call_id,step_id,tool,effect,timeout_seconds,taint,is_trusted,reserve,circuit_breaker,rates}');
    select array_agg(jsonb_populate_record(
               row(p_agent_id[n], p_turn_id[n], p_epoch[n], null, null, null, null, null, null, null, null, null,
                   null)::heliograph.new_call, w.intent) order by n, w.k),
           array_agg(n order by n, w.k)
      into intents, places
      from generate_subscripts(p_intents, 1) n
     cross join lateral jsonb_array_elements(nullif(p_intents[n], 'null')) with ordinality w (intent, k);
    intents := coalesce(intents, '{}');
end $$;

-- _begin_next: begin the calls whose intents record_call has, apart from those of items that are stale or rejected.
--   p_intents, p_places: see _intents_of. Returns the answers of begin_call to the intents of each place.
--   The caller holds the heads, the runs and the buckets.
create function heliograph._begin_next(
    p_project text, p_intents heliograph.new_call[], p_places integer[], p_results heliograph.judged_result[],
    p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb[] language plpgsql as $$
declare
    v_intents heliograph.new_call[];
    v_places integer[];
    v_answers jsonb[];
    v_begun jsonb[] := '{}';
begin
    select array_agg(p_intents[u.k] order by u.k), array_agg(u.place order by u.k)
      into v_intents, v_places
      from unnest(p_places) with ordinality u (place, k)
      join unnest(p_results) r on r.place = u.place
     where coalesce(r.rejection ->> 'outcome', 'ok') in ('ok', 'duplicate');
    if v_intents is not null then
        v_answers := heliograph._begin(p_project, v_intents, p_limits, p_now);
        for k in 1 .. cardinality(v_places) loop
            v_begun[v_places[k]] := coalesce(v_begun[v_places[k]], '[]') || jsonb_build_array(jsonb_build_object(
                'turn_id', v_intents[k].turn_id, 'call_id', v_intents[k].call_id) || v_answers[k]);
        end loop;
    end if;
    return v_begun;
end $$;

-- _check_results: reject results that record_call cannot take.
--   raises: 22023 naming the field
create function heliograph._check_results(
    p_call_id text[], p_status text[], p_error jsonb[], p_used jsonb[], p_rate_tokens bigint[], p_taint jsonb[],
    p_open_as jsonb[]
) returns void language plpgsql immutable as $$
declare
    v_wrong text;
begin
    for n in 1 .. cardinality(p_status) loop
        if (p_status[n] = 'success' or p_status[n] in ('failed', 'timeout', 'unknown', 'canceled')
                                       and jsonb_typeof(p_error[n]) <> 'null') is not true then
            v_wrong := 'status must be success, or failed, timeout, unknown or canceled with an error';
        elsif jsonb_typeof(p_taint[n]) not in ('array', 'null') then
            v_wrong := heliograph._other_type('p_items[]', jsonb_build_object('taint', p_taint[n]), 'taint', 'array');
        elsif p_rate_tokens[n] not between 0 and 1000000000 then
            v_wrong := 'p_items[].rate_tokens must be a whole number from 0 to 1000000000';
        end if;
        if v_wrong is null and p_used[n] is not null then
            v_wrong := heliograph._wrong_amounts('used', p_used[n]);
        end if;
        if v_wrong is null and jsonb_typeof(p_open_as[n]) <> 'null' then
            v_wrong := heliograph._wrong_open_as(p_call_id[n], p_open_as[n]);
        end if;
        if v_wrong is not null then
            raise exception using errcode = '22023', message = v_wrong;
        end if;
    end loop;
end $$;

-- _reject_recorded: null, or the rejection of a result, apart from its signals. p_kind, p_state: of the call; null if
--   it was not begun. p_known: the number of the turn's calls.
create function heliograph._reject_recorded(
    p_call_id text, p_open_as jsonb, p_kind text, p_state text, p_known bigint, p_result jsonb, p_error jsonb,
    p_limits heliograph.project_limits
) returns jsonb language plpgsql immutable as $$
begin
    return case
        when p_state is null and coalesce(p_open_as, 'null') = 'null'
        then heliograph._rejection('not_begun', format('call %s was not begun: begin_call comes first', p_call_id))
        when p_state is null and p_known >= p_limits.waits_max
        then heliograph._reject_waits(p_known + 1, p_limits.waits_max)
        when p_kind <> 'inline'
        then heliograph._rejection('not_inline', format('the turn waits for call %s of kind %s: report its result '
                                                        'instead', p_call_id, p_kind))
        when p_state <> 'open' then '{"outcome": "duplicate"}'
        else heliograph._reject_result(
                 jsonb_build_object('call_id', p_call_id, 'result', p_result, 'error', p_error), p_limits) end;
end $$;

-- _judge_results: the results of a round of record_call, each with its rejection, or else null, and what it changes.
--   p_bytes: see _exceeds. The caller holds the heads and the runs.
create function heliograph._judge_results(
    p_project text, p_places integer[], p_runs text[], p_agent_id text[], p_turn_id text[], p_epoch bigint[],
    p_call_id text[], p_status text[], p_result jsonb[], p_error jsonb[], p_signals jsonb[], p_signals_emitted bigint[],
    p_phase text[], p_taint jsonb[], p_open_as jsonb[], p_terminates boolean[], p_bytes integer,
    p_limits heliograph.project_limits
) returns setof heliograph.judged_result language sql stable as $$
    select n, v.rejection, p_turn_id[n], p_epoch[n], p_call_id[n], p_status[n], c.value,
           case when v.rejection is null and (p_phase[n] <> h.phase or p_terminates[n] and not h.terminates)
                then h.at end, coalesce(p_phase[n], h.phase), h.terminates or coalesce(p_terminates[n], false),
           r.at, case when s.written > 0 then l.at end, case when v.rejection is null then w.at end, t.output_box_id,
           r.signal_seq, s.written, case when s.written > 0 then heliograph._count_pending(p_signals[n]) else 0 end,
           case when s.written > 0 then r.signal_seq + 1 when v.rejection is null then l.last_append_seq end,
           p_open_as[n] ->> 'step_id', c.tool, c.is_trusted, c.taint, o.last + 1, w.reserved is not null, w.circuit
      from unnest(p_places) n
      left join lateral (
           select x.ctid as at, x.phase, x.terminates from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = p_agent_id[n] and x.status = 'running'
              and x.active_agent_turn_id = p_turn_id[n] and x.turn_epoch = p_epoch[n] offset 0) h on true
      left join lateral (
           select x.output_box_id from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = p_turn_id[n] offset 0) t on true
      left join lateral (
           select x.ctid as at, x.kind, x.state, x.kind = 'inline' and x.state = 'open' as is_open, x.tool,
                  x.is_trusted, x.taint, x.reserved, x.circuit
             from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = p_turn_id[n] and x.tool_call_id = p_call_id[n]
           offset 0) w on true
      left join lateral (
           select coalesce(max(x.resolved_position), 0) as last, count(*) as known from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = p_turn_id[n] offset 0) o on true
      left join lateral (
           select x.ctid as at, x.signal_seq from heliograph.runs x
            where x.project_id = p_project and x.run_id = p_runs[n] offset 0) r on true
      left join lateral (
           select x.ctid as at, x.last_append_seq, x.signals_emitted > p_signals_emitted[n] as has_drafts
             from heliograph.leases x
            where jsonb_array_length(p_signals[n]) > 0 and x.project_id = p_project and x.agent_id = p_agent_id[n]
              and x.turn_epoch = p_epoch[n] offset 0) l on true
     cross join lateral (
           select case p_status[n] when 'success' then p_result[n] else p_error[n] end as value,
                  coalesce(w.tool, p_open_as[n] ->> 'tool') as tool, coalesce(w.is_trusted, true) as is_trusted,
                  case when w.at is null then heliograph._taint(p_open_as[n] -> 'taint')
                       else coalesce(heliograph._taint(p_taint[n]), w.taint) end as taint offset 0) c
     cross join lateral (
           select case when h.at is null then '{"outcome": "stale"}'
                       else coalesce(
                           case when w.is_open is not true or p_bytes > p_limits.result_bytes_max
                                then heliograph._reject_recorded(
                                         p_call_id[n], p_open_as[n], w.kind, w.state, o.known, p_result[n], p_error[n],
                                         p_limits) end,
                           case when jsonb_array_length(p_signals[n]) > 0
                                then heliograph._reject_logged(p_runs[n], r.signal_seq, p_signals[n], p_bytes,
                                                               p_limits) end) end as rejection offset 0) v
     cross join lateral (
           select case when v.rejection is null and l.has_drafts is not true
                       then coalesce(jsonb_array_length(p_signals[n]), 0) else 0 end as written offset 0) s
$$;

-- _record: record the results of a round of record_call, apart from their signals. p_used, p_rate_tokens: of each item
--   of the call. p_bytes: see _exceeds.
--   The caller holds the heads, the runs and the buckets.
create function heliograph._record(
    p_project text, p_results heliograph.judged_result[], p_used jsonb[], p_rate_tokens bigint[], p_bytes integer,
    p_limits heliograph.project_limits, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_result heliograph.judged_result;
begin
    insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
    select p_project, heliograph._result_id(r.turn_id, r.call_id), r.box_id, r.turn_id, r.epoch, 'tool.result',
           case when heliograph._exceeds(r.value, p_bytes, p_limits.card_bytes_max)
                then heliograph._put_blob(p_project, c.content, p_now) else c.content end, p_now
      from unnest(p_results) r
     cross join lateral (
           select jsonb_build_object(
                      'call_id', r.call_id, 'tool', r.tool, 'status', r.status, 'trust',
                      case when r.is_trusted and r.taint is null then 'trusted' else 'untrusted' end,
                      case r.status when 'success' then 'output' else 'error' end, r.value) as content offset 0) c
     where r.rejection is null order by r.place;
    update heliograph.turn_waiting_tools w
       set state = 'resolved', status = r.status, resolved_position = r.position, resolved_at = p_now,
           resolved_seq = r.base + r.written, taint = r.taint
      from unnest(p_results) r where w.ctid = r.wait_at;
    foreach v_result in array p_results loop
        if v_result.rejection is null
           and (v_result.head_at is not null or v_result.wait_at is null or v_result.circuit is not null
                or v_result.is_reserved or p_rate_tokens[v_result.place] is not null
                or jsonb_typeof(p_used[v_result.place]) <> 'null') then
            perform heliograph._record_rest(p_project, p_results, p_used, p_rate_tokens, p_now);
            exit;
        end if;
    end loop;
end $$;

-- _record_rest: record what few results of a round of record_call have: phases, calls to open, circuit breakers, tokens
--   and reservations. See _record.
--   The caller holds the heads, the runs and the buckets.
create function heliograph._record_rest(
    p_project text, p_results heliograph.judged_result[], p_used jsonb[], p_rate_tokens bigint[], p_now timestamptz
) returns void language plpgsql as $$
declare
    v_circuits jsonb;
begin
    update heliograph.agent_state_head h set phase = r.phase, terminates = r.terminates
      from unnest(p_results) r where h.ctid = r.head_at;
    perform heliograph._open_recorded(p_project, p_results, p_now);
    select jsonb_agg(jsonb_build_object(
               'turn_id', r.turn_id, 'call_id', r.call_id, 'status', r.status, 'circuit', r.circuit,
               'is_recoverable', r.value ->> 'recoverable' is distinct from 'false') order by r.place)
      into v_circuits
      from unnest(p_results) r where r.rejection is null and r.circuit is not null;
    if v_circuits is not null then
        perform heliograph._count_circuits(p_project, v_circuits, p_now);
    end if;
    perform heliograph._correct_tokens(p_project, r.turn_id, r.call_id, p_rate_tokens[r.place], p_now)
       from unnest(p_results) r where r.rejection is null and p_rate_tokens[r.place] is not null;
    perform heliograph._settle(p_project, r.turn_id, r.call_id, heliograph._used(r.status, p_used[r.place]))
       from unnest(p_results) r
      where r.rejection is null and (r.is_reserved or jsonb_typeof(p_used[r.place]) <> 'null');
end $$;

-- _used: the amounts by kind with which the reservation of a recorded call is settled; see used of record_call.
create function heliograph._used(p_status text, p_used jsonb) returns jsonb
    language sql immutable as $$
    select case p_status when 'canceled' then jsonb '{"tokens": 0, "micros": 0, "model_calls": 0, "tool_calls": 0}'
                         else '{}' end || coalesce(nullif(p_used, 'null'), '{}')
$$;

-- _open_recorded: open calls that this commit has recorded; see open_as of record_call. Their effects are pure: nothing
--   happened, so they could be repeated. The caller holds the heads and the runs.
create function heliograph._open_recorded(p_project text, p_results heliograph.judged_result[], p_now timestamptz)
    returns void language plpgsql as $$
begin
    insert into heliograph.turn_waiting_tools
        (project_id, agent_turn_id, tool_call_id, step_id, tool, kind, effect, epoch, taint, is_trusted, opened_at,
         opened_seq, state, status, resolved_position, resolved_at, resolved_seq)
    select p_project, r.turn_id, r.call_id, r.step_id, r.tool, 'inline', 'pure', r.epoch, r.taint, true, p_now,
           coalesce(r.first_seq, r.base + 1), 'resolved', r.status, r.position, p_now, r.base + r.written
      from unnest(p_results) r where r.rejection is null and r.wait_at is null order by r.place;
end $$;
