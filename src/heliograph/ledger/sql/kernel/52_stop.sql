-- Stops of turns and of whole runs (K12, L0-80, L0-87, G-65, G-66). A turn has one ending, so the first request to end
-- it decides. The inbox and the log record the actor and the reason of a stop (S18).

-- stop: stop turns.
--   p_items: [{turn_id, mode, grace_seconds, reason, actor}]. mode 'force' ends the turn at once. 'graceful' gives a
--   running turn grace_seconds, 10 by default (CTL-73): renew returns the stop to its owner, which ends the turn;
--   after the grace, sweep_stops ends it. A turn that does not run, but terminates (see suspend), gets the grace too:
--   it is dispatched, and claim returns the stop to its next owner. Another turn that does not run ends at once in both
--   modes. reason: the reason in the signal halt, external_signal by default (CTL-30). The outbox delivers the stops of
--   delegated turns, in the same mode and with the same grace (_terminal).
--   Returns [{turn_id, outcome, targets}] in the order of p_items. 'stopped', with the owner that the turn had.
--   'stopping' with force_at, and with the owner of a running turn; a repeated graceful stop keeps the earlier
--   force_at. 'already_done' with turn_outcome. 'unknown_turn'.
--   raises: see _enter; 22023 for another mode, a grace that is not between 0 and a day, a reason or an actor that is
--           too long
--   locks:  the heads, then the runs
create function heliograph.stop(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_turns text[];
    v_item jsonb;
    v_part jsonb;
    v_answer jsonb := '[]';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{turn_id,mode,grace_seconds,reason,actor}');
    perform heliograph._check_stop(i) from jsonb_array_elements(p_items) i;
    v_turns := heliograph._lock_turns(p_project, array(select i ->> 'turn_id' from jsonb_array_elements(p_items) i));
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_part := case when v_item ->> 'turn_id' = any (v_turns)
                       then heliograph._stop_turn(p_project, v_item, p_now)
                       else heliograph._was_pruned(p_project, 'turn', v_item ->> 'turn_id') end;
        v_answer := v_answer || (jsonb_build_object('turn_id', v_item -> 'turn_id') || (v_part - 'woken')
                                 || heliograph._bells(p_project, array(
                                        select jsonb_array_elements_text(v_part -> 'woken'))));
    end loop;
    return v_answer;
end $$;

-- stop_runs: stop runs. A stopped run wakes no more agents. The outbox delivers the stops of its open turns, each in
--   its own transaction. The reaction to the last one ends the run as canceled. A session without a turn ends by the
--   reaction to its workflow:terminating. A further stop or close logs that again if an earlier version left such a
--   session open.
--   p_items: [{run_id, mode, grace_seconds, reason, actor}], see stop. Of two stops of one run, 'force' wins. mode
--   'close' is for sessions: the run takes no more messages, answers those that it has, and ends as success.
--   Returns [{run_id, outcome}] in the order of p_items. 'stopping'. 'already_done' with run_outcome. 'unknown_run'.
--   'no_session' for the mode 'close'.
--   raises: see stop
--   locks:  the runs, then the rows of the outbox: every writer of a turn's stop has locked its run
create function heliograph.stop_runs(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_item jsonb;
    v_answer jsonb := '[]';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{run_id,mode,grace_seconds,reason,actor}');
    perform heliograph._check_stop(case when i ->> 'mode' = 'close' then i || '{"mode": "graceful"}' else i end)
       from jsonb_array_elements(p_items) i;
    perform heliograph._lock_runs(p_project, array(select i ->> 'run_id' from jsonb_array_elements(p_items) i));
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_answer := v_answer || (jsonb_build_object('run_id', v_item -> 'run_id')
                                 || heliograph._stop_run(p_project, v_item, p_now));
    end loop;
    return v_answer;
end $$;

-- _stop_turn: execute one stop {turn_id, mode, grace_seconds, reason, actor}; see stop. Returns {outcome, ..}.
--   The caller holds the head and the run.
create function heliograph._stop_turn(p_project text, p_item jsonb, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_turn heliograph.agent_turns;
    v_head heliograph.agent_state_head;
    v_reason text := coalesce(p_item ->> 'reason', 'external_signal');
    v_force_at timestamptz := p_now + make_interval(secs => coalesce((p_item ->> 'grace_seconds')::float8, 10));
    v_woken jsonb;
begin
    select * into v_turn from heliograph.agent_turns
     where project_id = p_project and agent_turn_id = p_item ->> 'turn_id';
    if not found then
        return heliograph._was_pruned(p_project, 'turn', p_item ->> 'turn_id');
    elsif v_turn.state = 'done' then
        return jsonb_build_object('outcome', 'already_done', 'turn_outcome', v_turn.outcome);
    end if;
    select * into v_head from heliograph.agent_state_head where project_id = p_project and agent_id = v_turn.agent_id;
    if v_turn.state <> 'active' or (v_head.status <> 'running' and not v_head.terminates) then
        v_head.owner := null;
    elsif p_item ->> 'mode' = 'graceful' then
        v_woken := heliograph._dispatch_stopped(p_project, v_head, p_now);
        if v_head.force_at is null then
            perform heliograph._note_stop(p_project, v_turn, p_item, v_reason, 'pending', p_now);
        end if;
        update heliograph.agent_state_head
           set stop_requested_at = coalesce(stop_requested_at, p_now), force_at = least(force_at, v_force_at),
               stop_reason = coalesce(stop_reason, v_reason)
         where project_id = p_project and agent_id = v_turn.agent_id and (force_at is null or force_at > v_force_at);
        return jsonb_build_object('outcome', 'stopping', 'force_at', least(v_head.force_at, v_force_at),
                                  'woken', v_woken)
               || case when v_head.owner is null then '{}' else jsonb_build_object('owner', v_head.owner) end;
    end if;
    perform heliograph._note_stop(p_project, v_turn, p_item, v_reason, 'consumed', p_now);
    return jsonb_build_object('outcome', 'stopped', 'woken', heliograph._distinct(heliograph._end_by_kernel(
               p_project, v_turn.agent_turn_id, 'canceled', 'CANCELED', v_reason, p_now, p_child_stop =>
               jsonb_build_object('mode', p_item -> 'mode', 'grace_seconds', p_item -> 'grace_seconds'))))
           || case when v_head.owner is null then '{}' else jsonb_build_object('owner', v_head.owner) end;
end $$;

-- _dispatch_stopped: let a worker claim a suspended or deferred turn at once, because a graceful stop came. Its calls
--   remain open until it ends. Returns the agents that it woke: none if the turn runs, or is claimable already.
--   The caller holds the head and the run.
create function heliograph._dispatch_stopped(
    p_project text, p_head heliograph.agent_state_head, p_now timestamptz
) returns jsonb language plpgsql as $$
begin
    if p_head.status = 'running' or (p_head.status = 'dispatched' and p_head.due_at is null) then
        return '[]';
    end if;
    update heliograph.agent_state_head
       set status = 'dispatched', due_at = null, waiting_tool_count = 0, resume_deadline = null, resumes_on = null,
           moved_at = greatest(p_now, moved_at)
     where project_id = p_project and agent_id = p_head.agent_id;
    update heliograph.agent_inbox set next_retry_at = p_now
     where project_id = p_project and agent_turn_id = p_head.active_agent_turn_id and status = 'deferred'
       and next_retry_at > p_now;
    if p_head.status = 'suspended' then
        perform heliograph._credit_human_wait_time(p_project, jsonb_build_array(jsonb_build_object(
            'turn_id', p_head.active_agent_turn_id, 'since', p_head.moved_at, 'resumes', true, 'with_open', true)),
            p_now);
    end if;
    return jsonb_build_array(p_head.agent_id);
end $$;

-- _note_stop: record a stop with its actor: the signal halt in the log, and a row in the inbox of the turn (S18,
--   L0-60).
--   The caller holds the head and the run.
create function heliograph._note_stop(
    p_project text, p_turn heliograph.agent_turns, p_item jsonb, p_reason text, p_status text, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_seq bigint;
    v_head heliograph.agent_state_head;
begin
    select * into v_head from heliograph.agent_state_head where project_id = p_project and agent_id = p_turn.agent_id;
    v_seq := heliograph._log(p_project, p_turn.run_id, p_turn.agent_turn_id, jsonb_build_array(jsonb_build_object(
        'name', 'halt', 'agent', v_head.agent_name, 'parent', p_turn.activation_seq::text,
        'payload', jsonb_build_object('reason', p_reason, 'graceful', p_item ->> 'mode' = 'graceful')
                   || jsonb_strip_nulls(jsonb_build_object('actor', p_item -> 'actor')))), p_now);
    insert into heliograph.agent_inbox
        (project_id, agent_turn_id, message_type, status, turn_epoch, correlation_id, actor, next_retry_at,
         created_at, consumed_at)
    values (p_project, p_turn.agent_turn_id, 'stop', p_status,
            case when p_turn.state = 'active' then v_head.turn_epoch end, heliograph._signal_id(p_turn.run_id, v_seq),
            p_item ->> 'actor', p_now, p_now, case when p_status = 'consumed' then p_now end);
end $$;

-- _stop_run: execute one stop {run_id, mode, grace_seconds, reason, actor}; see stop_runs. Returns {outcome, ..}.
--   The run's memory records the reason, unless the run is ending for another reason: the last reaction logs it.
--   locks:  rows of the outbox; the caller holds the run
create function heliograph._stop_run(p_project text, p_item jsonb, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_run heliograph.runs;
    v_reason text := coalesce(p_item ->> 'reason', 'external_signal');
begin
    select * into v_run from heliograph.runs where project_id = p_project and run_id = p_item ->> 'run_id';
    if not found then
        return heliograph._was_pruned(p_project, 'run', p_item ->> 'run_id');
    elsif v_run.status = 'ended' then
        return jsonb_build_object('outcome', 'already_done', 'run_outcome', v_run.outcome);
    elsif p_item ->> 'mode' = 'close' then
        return heliograph._close_session(p_project, v_run, p_item, p_now);
    elsif v_run.status = 'running' or heliograph._is_left_open(v_run) then
        perform heliograph._log_terminating(
            p_project, v_run.run_id, v_reason, p_item,
            case when v_run.memory ->> 'session' = 'open' and v_run.open_turns = 0 then true end, p_now);
    end if;
    update heliograph.runs
       set status = 'terminating', stop_reason = coalesce(stop_reason, v_reason), version = version + 1,
           updated_at = p_now,
           memory = case when memory ? 'stopped_by' then memory
                         else memory || jsonb_build_object('stopped_by', v_reason, 'is_canceled', true) end
     where project_id = p_project and run_id = v_run.run_id and (status = 'running' or stop_reason is null);
    perform heliograph._order_stops(p_project, v_run.run_id, false, jsonb_build_object('mode', p_item -> 'mode',
                'grace_seconds', p_item -> 'grace_seconds', 'reason', v_reason, 'actor', p_item -> 'actor'), p_now);
    return jsonb_build_object('outcome', 'stopping');
end $$;

-- _is_left_open: whether a session is stopped, and nothing will end it: it has no turn and no pending reaction. Only
--   earlier versions left such rows, of sessions that were stopped without a turn. A new workflow:terminating ends it.
create function heliograph._is_left_open(p_run heliograph.runs) returns boolean
    language sql immutable as $$
    select p_run.status = 'terminating' and coalesce(p_run.memory ->> 'session' = 'open', false)
           and p_run.open_turns = 0 and p_run.pending_reactions = 0
$$;

-- _log_terminating: log that a run is stopped or closed, with the actor of the item. p_is_pending: the signal waits for
--   a reaction, which ends the run if it has no turn.
--   The caller holds the run.
create function heliograph._log_terminating(
    p_project text, p_run_id text, p_reason text, p_item jsonb, p_is_pending boolean, p_now timestamptz
) returns void language plpgsql as $$
begin
    perform heliograph._log(p_project, p_run_id, null, jsonb_build_array(
        jsonb_build_object(
            'name', 'workflow:terminating', 'parent', heliograph._root_id(p_project, p_run_id),
            'payload', jsonb_build_object('reason', p_reason)
                       || jsonb_strip_nulls(jsonb_build_object('actor', p_item -> 'actor')))
        || case when p_is_pending then jsonb '{"is_pending": true}' else '{}' end), p_now);
end $$;

-- _close_session: let a session end once it has answered the messages that it has. The signal waits for a reaction,
--   which ends the run if it has no turn.
--   The caller holds the run.
create function heliograph._close_session(
    p_project text, p_run heliograph.runs, p_item jsonb, p_now timestamptz
) returns jsonb language plpgsql as $$
begin
    if p_run.memory ->> 'session' is null then
        return '{"outcome": "no_session"}';
    elsif p_run.status = 'running' or heliograph._is_left_open(p_run) then
        perform heliograph._log_terminating(p_project, p_run.run_id, 'closed', p_item, true, p_now);
        update heliograph.runs
           set status = 'terminating', memory = memory || '{"session": "closed"}', updated_at = p_now
         where project_id = p_project and run_id = p_run.run_id and status = 'running';
    end if;
    return '{"outcome": "stopping"}';
end $$;

-- _was_pruned: the outcome for a turn or a run without a row: it was pruned, or it never existed.
create function heliograph._was_pruned(p_project text, p_kind text, p_id text) returns jsonb
    language sql stable as $$
    select coalesce(
        (select jsonb_build_object('outcome', 'already_done', p_kind || '_outcome', p.outcome) from heliograph.pruned p
          where p.project_id = p_project and p.id = p_kind || ':' || p_id),
        jsonb_build_object('outcome', 'unknown_' || p_kind))
$$;

-- _lock_turns: lock the heads of turns, then their runs. A turn keeps its agent and its run for life.
--   Turns that do not exist are skipped. Returns the others. A turn that is created while this call waits for locks is
--   not among them: the caller must treat it as unknown, because nothing of it may be written without its head.
--   locks:  the heads, then the runs
create function heliograph._lock_turns(p_project text, p_turn_ids text[]) returns text[]
    language plpgsql as $$
declare
    v_turns text[];
    v_agents text[];
    v_runs text[];
begin
    select array_agg(t.agent_turn_id order by t.agent_turn_id), array_agg(t.agent_id order by t.agent_turn_id),
           array_agg(t.run_id order by t.agent_turn_id)
      into v_turns, v_agents, v_runs from heliograph.agent_turns t
     where t.project_id = p_project and t.agent_turn_id = any (p_turn_ids);
    perform heliograph._lock_heads(p_project, v_agents);
    perform heliograph._lock_runs(p_project, v_runs);
    return coalesce(v_turns, '{}');
end $$;

-- _check_stop: check the mode, grace, reason and actor of a stop.
--   raises: 22023 with the name of the field
create function heliograph._check_stop(p_item jsonb) returns void
    language plpgsql immutable as $$
begin
    if not coalesce(p_item ->> 'mode' in ('force', 'graceful'), false) then
        raise exception using errcode = '22023', message = format('mode must be force or graceful, not %s',
                                                                  p_item ->> 'mode');
    elsif not coalesce((p_item ->> 'grace_seconds')::float8 between 0 and 86400, true) then
        raise exception using errcode = '22023', message = 'grace_seconds must be between 0 and 86400';
    elsif not coalesce(jsonb_typeof(p_item -> 'reason') in ('string', 'null'), true) or p_item ->> 'reason' = '' then
        raise exception using errcode = '22023', message = 'reason must be a string that is not empty';
    elsif octet_length(p_item ->> 'reason') > 1000 then
        raise exception using errcode = '22023', message = 'reason must have at most 1000 bytes';
    elsif octet_length(p_item ->> 'actor') > 200 then
        raise exception using errcode = '22023', message = 'actor must have at most 200 bytes';
    end if;
end $$;
