-- Recording inline calls: an owner commits the result of an effect after it has happened (K13).

-- record_call: commit the results of inline calls.
--   p_items: [{agent_id, turn_id, epoch, call_id, status, result, error, signals: [draft], signals_emitted, phase,
--   used, rate_tokens, taint, open_as, terminates, recording}]. status: success with result; failed, timeout,
--   unknown or canceled with error.
--   signals, signals_emitted, phase: as in append; no other signal logs the result. used: how much of its reservation
--   the call used, by kind. A kind that is not named counts as used up; of a canceled call as unused, because its
--   effect did not happen. rate_tokens: the actual tokens of a model call, which replace its estimate in the buckets of
--   kind model_tokens. taint: the untrusted sources that the turn has read by now, if this call read some; without it
--   those of begin_call remain. open_as: {step_id, tool, taint} of a call without an effect of its own, which nobody
--   begins: one that is not to run at all, or the end of a phase. It is opened and recorded in this commit.
--   terminates: see suspend; it holds from now on, also if the owner is lost. recording: see _recording_of.
--   Returns [{turn_id, call_id, outcome, first_seq}] in the order of p_items. 'ok'. 'duplicate': a result was recorded
--   before; nothing is written. 'stale'. 'rejected' with code and message: payload_too_large, not_begun, not_inline,
--   too_many_waits, reserved_name, invalid_signal.
--   raises: see _enter; 22023 for an unknown status, a missing error, an invalid call or phase
--   locks:  the heads, then the runs, then the buckets
create function heliograph.record_call(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_bytes integer;
    v_item jsonb;
    v_call text;
    v_recorded text[] := '{}';  -- the calls that earlier items have recorded
    v_results jsonb;
    v_used jsonb;
    v_answer jsonb;
    v_answers jsonb := '[]';
    v_corrects constant boolean := jsonb_path_exists(p_items, '$[*].rate_tokens.type() ? (@ != "null")');
begin
    v_bytes := heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items,
        '{agent_id,turn_id,epoch,call_id,status,result,error,signals,signals_emitted,phase,used,'
        'rate_tokens,taint,open_as,terminates,recording}');
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
    end if;
    perform heliograph._lock_items(p_project, p_items);
    if v_corrects then
        perform heliograph._check_rate_tokens(p_items);
        perform heliograph._lock_taken(p_project, p_items);
    end if;
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        -- judged here, because it counts the calls that earlier items have opened
        v_answer := heliograph._judge_record(p_project, v_item, v_bytes, v_limits);
        v_call := (v_item ->> 'turn_id') || ':' || (v_item ->> 'call_id');
        if v_answer ->> 'outcome' = 'ok' and v_call = any (v_recorded) then
            v_answer := '{"outcome": "duplicate"}';
        elsif v_answer ->> 'outcome' = 'ok' then
            v_recorded := v_recorded || v_call;
            if v_answer ? 'settles' then
                v_used := coalesce(v_used, '[]') || v_item;
            end if;
            if v_corrects and v_item ->> 'rate_tokens' is not null then
                perform heliograph._correct_tokens(p_project, v_item, p_now);
            end if;
            if v_answer ? 'opens' then
                perform heliograph._open_recorded(p_project, v_item, p_now);
            elsif heliograph._taint(v_item) is not null then
                update heliograph.turn_waiting_tools set taint = heliograph._taint(v_item)
                 where project_id = p_project and agent_turn_id = v_item ->> 'turn_id'
                   and tool_call_id = v_item ->> 'call_id';
            end if;
            v_answer := v_answer - '{settles,opens}'::text[] || jsonb_build_object(
                'first_seq', heliograph._append_drafts(p_project, v_item, p_now));
            v_results := coalesce(v_results, '[]') || jsonb_build_object(
                'turn_id', v_item -> 'turn_id', 'call_id', v_item -> 'call_id', 'status', v_item -> 'status',
                'output', v_item -> 'result', 'error', v_item -> 'error', 'seq',
                case when v_answer ->> 'first_seq' is not null
                     then (v_answer ->> 'first_seq')::bigint + jsonb_array_length(v_item -> 'signals') - 1 end);
        end if;
        v_answers := v_answers || (jsonb_build_object('turn_id', v_item -> 'turn_id', 'call_id', v_item -> 'call_id')
                                   || v_answer);
    end loop;
    if v_results is not null then
        perform heliograph._resolve(p_project, v_results, v_bytes, v_limits, false, p_now);
    end if;
    if v_used is not null then
        perform heliograph._settle(p_project, u.item ->> 'turn_id', u.item ->> 'call_id',
                   case u.item ->> 'status' when 'canceled'
                        then jsonb '{"tokens": 0, "micros": 0, "model_calls": 0, "tool_calls": 0}' else '{}' end
                   || coalesce(nullif(u.item -> 'used', 'null'), '{}'))
           from jsonb_array_elements(v_used) with ordinality u (item, n);
    end if;
    return v_answers;
end $$;

-- _open_recorded: open a call that this commit records; see open_as of record_call. Its effect is pure: nothing
--   happened, so it could be repeated. The caller holds the head.
create function heliograph._open_recorded(p_project text, p_item jsonb, p_now timestamptz) returns void
    language plpgsql as $$
declare
    v_head heliograph.agent_state_head;
begin
    select * into v_head from heliograph.agent_state_head where project_id = p_project
        and agent_id = p_item ->> 'agent_id';
    insert into heliograph.turn_waiting_tools
        (project_id, agent_turn_id, tool_call_id, agent_id, run_id, step_id, tool, kind, effect, epoch, taint,
         is_trusted, opened_at, opened_seq)
    values (p_project, p_item ->> 'turn_id', p_item ->> 'call_id', v_head.agent_id, v_head.run_id,
            p_item #>> '{open_as,step_id}', p_item #>> '{open_as,tool}', 'inline', 'pure', v_head.turn_epoch,
            heliograph._taint(p_item -> 'open_as'), true, p_now, (
                select r.signal_seq + 1 from heliograph.runs r
                 where r.project_id = p_project and r.run_id = v_head.run_id));
    insert into heliograph.execution_edges
        (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, call_id, cause_id, created_at)
    values (p_project, p_item ->> 'turn_id', 'tool_call', 'request', v_head.run_id, v_head.agent_id,
            p_item ->> 'call_id', v_head.parent_step_id, p_now);
end $$;

-- _judge_record: the outcome of one recorded call, before anything of it is written; see record_call. settles: its
--   reservation has to be settled; opens: it has to be opened first. The caller holds the head.
create function heliograph._judge_record(
    p_project text, p_item jsonb, p_bytes integer, p_limits heliograph.project_limits
) returns jsonb
    language plpgsql stable as $$
declare
    v_wait heliograph.turn_waiting_tools;
    v_opens boolean := false;
    v_known bigint;
begin
    if not heliograph._owns(p_project, p_item ->> 'agent_id', p_item ->> 'turn_id', (p_item ->> 'epoch')::bigint) then
        return '{"outcome": "stale"}';
    end if;
    select * into v_wait from heliograph.turn_waiting_tools
     where project_id = p_project and agent_turn_id = p_item ->> 'turn_id' and tool_call_id = p_item ->> 'call_id';
    if not found and coalesce(jsonb_typeof(p_item -> 'open_as'), 'null') <> 'null' then
        select count(*) into v_known from heliograph.turn_waiting_tools
         where project_id = p_project and agent_turn_id = p_item ->> 'turn_id';
        if v_known >= p_limits.waits_max then
            return heliograph._reject_waits(v_known + 1, p_limits.waits_max);
        end if;
        v_opens := true;
    elsif not found then
        return heliograph._rejection('not_begun', format('call %s was not begun: begin_call comes first',
                                                         p_item ->> 'call_id'));
    elsif v_wait.kind <> 'inline' then
        return heliograph._rejection('not_inline', format(
            'the turn waits for call %s of kind %s: report its result instead', p_item ->> 'call_id', v_wait.kind));
    elsif v_wait.state <> 'open' then
        return '{"outcome": "duplicate"}';
    end if;
    return coalesce(heliograph._reject_result(p_item, p_limits),
                    heliograph._reject_cards_and_signals(p_project, p_item, p_bytes, p_limits),
                    jsonb '{"outcome": "ok"}'
                    || case when v_wait.reserved is not null or p_item ->> 'used' is not null
                            then jsonb '{"settles": true}' else '{}' end
                    || case when v_opens then jsonb '{"opens": true}' else '{}' end);
end $$;
