-- Resolving: the result of a call closes its wait, and the turn resumes when nothing else is open (K4, K15).

-- _resolve: resolve open waits, and resume the turns that wait for nothing else. _record does it for record_call.
--   A result whose wait is not open changes nothing. message_type: of the inbox row (L0-60, L0-75); null for an inline
--   call, whose owner has the result. inbox_id: the row of an early report. more: further fields of the card. session:
--   the login that answered for a person; the card has it beside the name of that person (S18). trust: 'untrusted' for
--   a delegated turn that had read untrusted content. is_canceled_sibling: see _with_canceled_siblings. may_still_run:
--   see report. p_bytes: see _exceeds.
--   For each wait: the card tool.result in the output box, the wait with its place in the order of arrival, inbox row,
--   signal, the command deleted (K18), and a stop for a delegated turn that would run on without its parent, or
--   the halt of such a command. Then each suspended turn counts its open waits: it resumes if there are none, or at
--   once if it resumes on each (L0-62, L0-63), and keeps its place in the claim order (K22).
--   Returns {resumed: [turn_id], woken: [agent_id]}.
--   locks:  the commands, ascending by key; the caller holds the heads and the runs
create function heliograph._resolve(
    p_project text, p_results heliograph.call_result[], p_bytes integer, p_limits heliograph.project_limits,
    p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_result heliograph.call_result;
    v_each heliograph.resolved_result;
    v_before heliograph.resolved_result;
    v_results heliograph.resolved_result[] := '{}';
    v_has_messages boolean := false; v_has_circuits boolean := false; v_is_awaited boolean := false;
    v_woken jsonb := '{"resumed": [], "woken": []}';
begin
    foreach v_result in array p_results loop
        if v_result.status is distinct from 'success' then
            p_results := heliograph._with_canceled_siblings(p_project, p_results);
            p_bytes := greatest(p_bytes, 2000);  -- the error of a canceled call is shorter
            exit;
        end if;
    end loop;
    for v_each in select x.* from heliograph._applicable(p_project, p_results) x
                   order by x.run_id collate "C", x.turn_id collate "C", x.place loop
        -- the results of one run follow each other, as do those of one turn
        v_each.seq := case when v_each.run_id = v_before.run_id then v_before.seq else v_each.seq end + 1;
        v_each.position := case when v_each.turn_id = v_before.turn_id then v_before.position
                                else v_each.position end + 1;
        v_each.entry := heliograph._result_entry(
            v_each, heliograph._exceeds(v_each.value, p_bytes, p_limits.payload_bytes_max), p_now);
        v_each.content := heliograph._result_content(v_each);
        if heliograph._exceeds(v_each.value, p_bytes, p_limits.card_bytes_max) then
            v_each.content := heliograph._put_blob(p_project, v_each.content, p_now);
        end if;
        v_has_messages := v_has_messages or v_each.message_type is not null;
        v_is_awaited := v_is_awaited or v_each.head_at is not null;
        v_has_circuits := v_has_circuits or v_each.circuit is not null;
        v_results := v_results || v_each;
        v_before := v_each;
    end loop;
    if cardinality(v_results) = 0 then
        return v_woken;
    end if;
    insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
    select p_project, r.card_id, r.box_id, r.turn_id, r.epoch, 'tool.result', r.content, p_now
      from unnest(v_results) r;
    update heliograph.turn_waiting_tools w
       set state = 'resolved', status = r.status, resolved_position = r.position, resolved_at = p_now,
           after_execution = r.after_execution, resolved_seq = r.seq
      from unnest(v_results) r where w.ctid = r.wait_at;
    if v_has_messages then
        perform heliograph._write_messages(p_project, v_results, p_now);
        perform heliograph._acknowledge_calls(p_project, v_results, p_now);
    end if;
    perform heliograph._log_results(p_project, v_results, p_now);
    if v_is_awaited then
        v_woken := heliograph._resume_turns(p_project, v_results, p_now);
    end if;
    if v_has_circuits then
        perform heliograph._count_circuits(p_project, (
            select jsonb_agg(jsonb_build_object(
                       'turn_id', r.turn_id, 'call_id', r.call_id, 'status', r.status, 'circuit', r.circuit,
                       'is_recoverable', r.value ->> 'recoverable' is distinct from 'false'))
              from unnest(v_results) r where r.circuit is not null), p_now);
    end if;
    return v_woken;
end $$;

-- _result_content: the content of the card of a result.
create function heliograph._result_content(p_result heliograph.resolved_result) returns jsonb
    language plpgsql immutable as $$
declare
    v_content jsonb := jsonb_build_object(
        'call_id', p_result.call_id, 'tool', p_result.tool, 'status', p_result.status, 'trust', p_result.trust,
        case p_result.status when 'success' then 'output' else 'error' end, p_result.value);
begin
    if p_result.more is not null then
        v_content := v_content || p_result.more;
    end if;
    if p_result.kind = 'human' and p_result.session is not null then
        v_content := v_content || jsonb_build_object('session', p_result.session);
    end if;
    return v_content;
end $$;

-- _result_entry: the log entry of a result: tool:result, or delegation_response for a delegated turn. p_is_large: the
--   result is only in its card.
create function heliograph._result_entry(
    p_result heliograph.resolved_result, p_is_large boolean, p_now timestamptz
) returns jsonb language plpgsql immutable as $$
declare
    v_is_child constant boolean := p_result.child_turn_id is not null;
    v_payload jsonb;
    v_outcome text;
    v_entry jsonb;
begin
    if v_is_child then
        v_outcome := coalesce(p_result.more ->> 'outcome', p_result.status);
        v_payload := jsonb_build_object(
            'id', p_result.call_id, 'target_agent', p_result.tool, 'task_id', p_result.child_turn_id, 'outcome',
            v_outcome, 'status', case when v_outcome in ('success', 'partial') then 'completed' else 'failed' end,
            'duration_ms', greatest(0, floor(extract(epoch from p_now - p_result.opened_at) * 1000))::bigint,
            'card_id', p_result.card_id);
    else
        v_payload := jsonb_build_object('id', p_result.call_id, 'call_id', p_result.call_id, 'name', p_result.tool,
                                        'status', p_result.status, 'card_id', p_result.card_id);
    end if;
    if not p_is_large then
        v_payload := v_payload || jsonb_build_object(
            case when p_result.status <> 'success' then 'error' when v_is_child then 'result' else 'output' end,
            p_result.value);
    end if;
    v_entry := jsonb_build_object(
        'name', case when v_is_child then 'delegation_response' else 'tool:result' end, 'agent', p_result.agent,
        'parent', p_result.parent, 'payload', v_payload);
    if p_result.is_pending then
        v_entry := v_entry || '{"is_pending": true}';
    end if;
    return case when p_result.trust = 'untrusted' then v_entry || '{"trust": "untrusted"}' else v_entry end;
end $$;

-- _write_messages: write the messages about results. The message of an early report becomes the one of its result.
create function heliograph._write_messages(
    p_project text, p_results heliograph.resolved_result[], p_now timestamptz
) returns void language plpgsql as $$
begin
    insert into heliograph.agent_inbox (project_id, agent_turn_id, message_type, status, turn_epoch, correlation_id,
        applied, report_status, actor, next_retry_at, created_at)
    select p_project, r.turn_id, r.message_type, 'pending', r.epoch, r.call_id, true, r.status, r.actor, p_now, p_now
      from unnest(p_results) r where r.message_type is not null and r.early_at is null;
    update heliograph.agent_inbox m
       set applied = true, report_status = r.status, turn_epoch = r.epoch, payload = null
      from unnest(p_results) r where m.ctid = r.early_at;
end $$;

-- _acknowledge_calls: acknowledge the commands of resolved calls (K18). If the turn continues although a delegated turn
--   or the work of a command may not have ended, that turn is stopped, or that work is halted.
--   locks:  the commands, ascending by key
create function heliograph._acknowledge_calls(
    p_project text, p_results heliograph.resolved_result[], p_now timestamptz
) returns void language plpgsql as $$
declare
    v_taken constant heliograph.outbox[] := heliograph._acknowledge(p_project, array(
        select 'cmd:' || r.turn_id || ':' || r.call_id from unnest(p_results) r where r.kind <> 'inline'), p_now);
begin
    if exists (select from unnest(p_results) r where r.continues_without) then
        insert into heliograph.outbox (project_id, key, kind, agent_turn_id, call_id, body, created_at, due_at)
        (select p_project, 'stop:' || r.child_turn_id, 'stop', r.child_turn_id, null,
                '{"reason": "the turn that waited for it went on without it", "mode": "force"}'::jsonb, p_now, p_now
           from unnest(p_results) r
          where r.child_turn_id is not null and r.continues_without order by r.child_turn_id collate "C")
        union all
        (select h.*
           from unnest(p_results) r
           join unnest(v_taken) o on o.agent_turn_id = r.turn_id and o.call_id = r.call_id
          cross join lateral heliograph._halt_of(o, p_now) h
          where r.continues_without order by h.key)
        on conflict (project_id, key) do update set body = excluded.body, due_at = excluded.due_at, deliveries = 0,
           published_at = null where outbox.body ->> 'mode' <> 'force';  -- see _close_calls
    end if;
end $$;

-- _log_results: append results to the logs of their runs, make them known, and look for checkpoints. The signals of a
--   run are consecutive.
--   The caller holds the runs.
create function heliograph._log_results(
    p_project text, p_results heliograph.resolved_result[], p_now timestamptz
) returns void language plpgsql as $$
declare
    v_run record;
begin
    insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, is_pending)
    select p_project, r.run_id, min(r.seq), count(*), jsonb_agg(r.entry order by r.seq), r.turn_id, p_now,
           bool_or(r.is_pending)
      from unnest(p_results) r group by r.run_id, r.turn_id;
    for v_run in
        with logged as (
            update heliograph.runs x
               set signal_seq = g.last, pending_reactions = x.pending_reactions + g.pending,
                   version = x.version + sign(g.pending)::integer, updated_at = p_now
              from (select r.run_at, min(r.seq) - 1 as before, max(r.seq) as last,
                           count(*) filter (where r.is_pending) as pending
                      from unnest(p_results) r group by 1) g
             where x.ctid = g.run_at
            returning x.run_id, g.before, g.last
        )
        select * from logged order by run_id
    loop
        if heliograph._crosses_checkpoint(v_run.before, v_run.last) then
            perform heliograph._checkpoint(p_project, v_run.run_id, v_run.before);
        end if;
    end loop;
    perform heliograph._feed_runs(p_project, array(select r.run_id from unnest(p_results) r));
end $$;

-- _resume_turns: count the open calls of suspended turns after results, and resume those that wait for nothing else.
--   Returns {resumed: [turn_id], woken: [agent_id]}.
--   The caller holds the heads.
create function heliograph._resume_turns(
    p_project text, p_results heliograph.resolved_result[], p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_resumed jsonb;
    v_woken jsonb;
    v_human jsonb;  -- the turns whose waiting for humans began or ended, see _credit_human_wait_time
begin
    with awaited as materialized (
        select a.at, h.agent_id, a.turn_id, h.moved_at, o.*
          from (select r.head_at as at, r.turn_id, bool_or(r.kind in ('human', 'child')) as is_human
                  from unnest(p_results) r where r.head_at is not null group by 1, 2) a
         cross join lateral (select x.agent_id, x.moved_at, x.resumes_on from heliograph.agent_state_head x
                              where x.ctid = a.at offset 0) h
         cross join lateral heliograph._after_results(p_project, a.turn_id, h.resumes_on, a.is_human) o
    ), head as (
        update heliograph.agent_state_head h
           set status = case when a.resumes then 'dispatched' else 'suspended' end, waiting_tool_count = a.waits,
               resume_deadline = a.deadline, resumes_on = a.resumes_on,
               moved_at = case when a.resumes then greatest(p_now, h.moved_at) else h.moved_at end
          from awaited a where h.ctid = a.at
    )
    select coalesce(jsonb_agg(turn_id order by turn_id) filter (where resumes), '[]'),
           coalesce(jsonb_agg(agent_id order by agent_id) filter (where resumes), '[]'),
           jsonb_agg(jsonb_build_object('turn_id', turn_id, 'since', moved_at, 'resumes', resumes) order by turn_id)
               filter (where is_human)
      into v_resumed, v_woken, v_human from awaited;
    if v_human is not null then
        perform heliograph._credit_human_wait_time(p_project, v_human, p_now);
    end if;
    return jsonb_build_object('resumed', v_resumed, 'woken', v_woken);
end $$;

-- _applicable: the results whose waits are open, each with the rows that it changes. seq: the newest signal of the run.
--   position: that of the turn's last result before this call. after_execution: that of the call, unless it lets its
--   result override this with the key __cg_control of the specification (L0-57).
--   The caller holds the heads and the runs.
create function heliograph._applicable(p_project text, p_results heliograph.call_result[])
    returns setof heliograph.resolved_result language sql stable as $$
    select x.n, x.turn_id, x.call_id, x.status, v.value, x.message_type, x.actor, x.session, x.more,
           x.message_type = 'timeout' or x.is_canceled_sibling or x.may_still_run, r.signal_seq, t.agent_id, t.run_id,
           w.child_turn_id, w.kind, w.tool, w.trust,
           case when w.may_override and x.output #>> '{__cg_control,after_execution}' in ('suspend', 'terminate')
                then x.output #>> '{__cg_control,after_execution}' else w.after_execution end,
           w.circuit, w.opened_at, t.output_box_id, h.turn_epoch, h.agent_name, h.activation_seq::text,
           r.wakes_on_results, o.last, w.at, m.at, r.at,
           case when h.status = 'suspended' and w.kind <> 'inline' then h.at end,
           heliograph._result_id(x.turn_id, x.call_id), null::jsonb, null::jsonb
      from unnest(p_results) with ordinality
           x (turn_id, call_id, status, output, error, message_type, actor, inbox_id, more, session,
              is_canceled_sibling, may_still_run, trust, n)
     cross join lateral (select case x.status when 'success' then x.output else x.error end as value) v
     cross join lateral (
           select y.ctid as at, y.*,
                  -- results of humans are trusted, but the error of an expired question quotes it; a delegated turn
                  -- is trusted as far as its own content was; a tool if its author vouches for it
                  case y.kind when 'human' then case when x.message_type = 'timeout' and y.taint is not null
                                                     then 'untrusted' else 'trusted' end
                              when 'child' then coalesce(x.trust, 'trusted')
                              else case when y.is_trusted and y.taint is null then 'trusted' else 'untrusted' end
                              end as trust
             from heliograph.turn_waiting_tools y
            where y.project_id = p_project and y.agent_turn_id = x.turn_id and y.tool_call_id = x.call_id
              and y.state = 'open' offset 0) w
     cross join lateral (
           select y.agent_id, y.run_id, y.output_box_id from heliograph.agent_turns y
            where y.project_id = p_project and y.agent_turn_id = x.turn_id offset 0) t
     cross join lateral (
           select y.ctid as at, y.turn_epoch, y.agent_name, y.status, y.activation_seq
             from heliograph.agent_state_head y
            where y.project_id = p_project and y.agent_id = t.agent_id
              and y.active_agent_turn_id = x.turn_id offset 0) h
     cross join lateral (
           select y.ctid as at, y.signal_seq, y.wakes_on_results from heliograph.runs y
            where y.project_id = p_project and y.run_id = t.run_id offset 0) r
     cross join lateral (
           select coalesce(max(y.resolved_position), 0) as last from heliograph.turn_waiting_tools y
            where y.project_id = p_project and y.agent_turn_id = x.turn_id offset 0) o
      left join lateral (
           select y.ctid as at from heliograph.agent_inbox y
            where x.inbox_id is not null and y.project_id = p_project and y.agent_turn_id = x.turn_id
              and y.inbox_id = x.inbox_id offset 0) m on true
$$;

-- _after_results: the state of a suspended turn after results: it resumes if no call is open, or at once if it resumes
--   on each. waits, deadline and resumes_on are the new values of its head. is_human: a turn that resumes had waited
--   for humans (p_is_human), or a turn that does not resume now waits only for humans.
create function heliograph._after_results(
    p_project text, p_turn_id text, p_resumes_on text, p_is_human boolean
) returns table (resumes boolean, waits bigint, deadline timestamptz, resumes_on text, is_human boolean)
    language sql stable as $$
    select r.resumes, case when r.resumes then 0 else r.waits end, case when not r.resumes then r.deadline end,
           case when not r.resumes then p_resumes_on end, case when r.resumes then p_is_human else r.is_human end
      from (select o.waits, o.deadline, o.is_human, o.waits = 0 or p_resumes_on = 'each' as resumes
              from heliograph._open_waits(p_project, p_turn_id) o) r
$$;

-- _with_canceled_siblings: the results, followed by the calls that they cancel. Where a call that fails fast did not
--   succeed, the other open calls of its step with that mark are canceled, and their errors name the call that failed
--   first. is_canceled_sibling: each delegated turn among them is stopped, because its parent continues without it.
--   The caller holds the heads.
create function heliograph._with_canceled_siblings(p_project text, p_results heliograph.call_result[])
    returns heliograph.call_result[] language sql stable as $$
    with failed as (
        select distinct on (w.agent_turn_id, w.step_id) w.agent_turn_id, w.step_id, w.tool_call_id, w.tool
          from unnest(p_results) with ordinality
               r (turn_id, call_id, status, output, error, message_type, actor, inbox_id, more, session,
                  is_canceled_sibling, may_still_run, trust, n)
         cross join lateral (
               select x.agent_turn_id, x.tool_call_id, x.step_id, x.tool from heliograph.turn_waiting_tools x
                where x.project_id = p_project and x.agent_turn_id = r.turn_id and x.tool_call_id = r.call_id
                  and x.state = 'open' and x.fails_fast and x.step_id is not null offset 0) w
         where r.status <> 'success'
         order by w.agent_turn_id, w.step_id, r.n
    )
    select p_results || array_agg((
               w.agent_turn_id, w.tool_call_id, 'canceled', null, jsonb_build_object(
                   'code', 'CANCELED', 'recoverable', false, 'first_failed_call', f.tool_call_id,
                   'message', format('call %s (%s) failed first', f.tool_call_id, f.tool)),
               'tool_result', null, null, null, null, true, null, null)::heliograph.call_result
               order by w.agent_turn_id, w.position)
      from failed f
     cross join lateral (
           select x.agent_turn_id, x.tool_call_id, x.position from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = f.agent_turn_id and x.step_id = f.step_id
              and x.state = 'open' and x.fails_fast offset 0) w
     where not exists (select from unnest(p_results) r
                        where r.turn_id = w.agent_turn_id and r.call_id = w.tool_call_id)
$$;

-- _call_results: results that are JSON objects, as rows.
create function heliograph._call_results(p_results jsonb) returns heliograph.call_result[]
    language plpgsql immutable as $$
begin
    return array(select r from jsonb_populate_recordset(null::heliograph.call_result, p_results) r);
end $$;
