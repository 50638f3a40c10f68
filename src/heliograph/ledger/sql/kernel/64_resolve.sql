-- Resolving: the result of a call closes its wait, and the turn resumes when nothing else is open (K4, K15).

-- _resolve: resolve open waits, and resume the turns that wait for nothing else. The only function that does.
--   p_results: [{turn_id, call_id, status, output, error, message_type, actor, inbox_id, more, session, trust,
--   is_canceled_sibling, may_still_run, seq}]. A result whose wait is not open changes nothing. message_type: of the
--   inbox row (L0-60, L0-75); null for an inline call, whose owner has the result. inbox_id: the row of an early
--   report. more: further fields of the card. session: the login that answered for a person; the card has it beside the
--   name of that person (S18). trust: 'untrusted' for a delegated turn that had read untrusted content.
--   is_canceled_sibling: see _with_canceled_siblings. may_still_run: see report. seq: the last signal that the owner
--   has logged with the result.
--   p_bytes: see _exceeds. p_logs: log tool:result, or delegation_response for a delegated turn.
--   For each wait: the card tool.result in the output box, the wait with its place in the order of arrival, inbox row,
--   edge report/response (join/response for a delegated turn), signal, the command acknowledged (K18), and a stop for a
--   delegated turn that would run on without its parent, or the halt of such a command. Then each suspended turn counts
--   its open waits: it resumes if there are none, or at once if it resumes on each (L0-62, L0-63), and keeps its place
--   in the claim order (K22).
--   Returns {resumed: [turn_id], woken: [agent_id]}.
--   locks:  the commands, ascending by key; the caller holds the heads and the runs
create function heliograph._resolve(p_project text, p_results jsonb, p_bytes integer,
        p_limits heliograph.project_limits, p_logs boolean, p_now timestamptz) returns jsonb language plpgsql as $$
declare
    v_answer jsonb; v_human jsonb; v_circuits jsonb; v_logged jsonb;
begin
    if jsonb_path_exists(p_results, '$[*].status ? (@ != "success")') then
        p_results := heliograph._with_canceled_siblings(p_project, p_results);
        p_bytes := octet_length(p_results::text);
    end if;
    with item as materialized (
        select * from heliograph._applicable(p_project, p_results, p_now)
    ), card as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, card_id, output_box_id, turn_id, turn_epoch, 'tool.result',
               case when heliograph._exceeds(value, p_bytes, p_limits.card_bytes_max)
                    then heliograph._put_blob(p_project, content, p_now) else content end, p_now from item order by seq
    ), wait as (
        update heliograph.turn_waiting_tools w set state = 'resolved', status = i.status, result_card_id = i.card_id,
               resolved_position = i.place, resolved_at = p_now, after_execution = i.after_execution,
               resolved_seq = case when p_logs then i.seq else i.logged_seq end from item i where w.ctid = i.wait_at
    ), message as (
        insert into heliograph.agent_inbox (project_id, agent_turn_id, agent_id, message_type, status, turn_epoch,
            correlation_id, applied, report_status, payload_card_id, actor, next_retry_at, created_at)
        select p_project, turn_id, agent_id, message_type, 'pending', turn_epoch, call_id, true, status, card_id, actor,
               p_now, p_now from item where message_type is not null and inbox_id is null order by seq
    ), kept as (
        update heliograph.agent_inbox m set applied = true, report_status = i.status, payload_card_id = i.card_id,
               turn_epoch = i.turn_epoch, payload = null
          from item i where i.inbox_id is not null and m.ctid = i.inbox_at
    ), edge as (
        insert into heliograph.execution_edges (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id,
            call_id, other_turn_id, cause_id, created_at)
        select p_project, turn_id, case when child_turn_id is null then 'report' else 'join' end, 'response', run_id,
               agent_id, call_id, child_turn_id, case when p_logs then heliograph._signal_id(run_id, seq)
               else parent_step_id end, p_now from item where message_type is not null order by seq
    ), acknowledged as (  -- by key, because a relay may move them meanwhile
        update heliograph.outbox o set published_at = p_now, body = heliograph._as_object(o.body) - 'token'
          from (select y.key from heliograph.outbox y
                 where y.project_id = p_project and heliograph._is_unpublished(y.published_at)
                   and y.key = any (array(select 'cmd:' || turn_id || ':' || call_id from item where kind <> 'inline'))
                 order by y.key for update) locked
         where o.project_id = p_project and o.key = locked.key returning o as command
    ), orphaned as (
        insert into heliograph.outbox (project_id, key, kind, agent_turn_id, call_id, body, created_at, due_at)
        (select p_project, 'stop:' || child_turn_id, 'stop', child_turn_id, null,
                '{"reason": "the turn that waited for it went on without it", "mode": "force"}'::jsonb, p_now, p_now
           from item where child_turn_id is not null and goes_on_without order by child_turn_id collate "C")
        union all (select h.* from acknowledged a cross join lateral heliograph._halt_of(a.command, p_now) h where
          (h.agent_turn_id, h.call_id) in (select turn_id, call_id from item where goes_on_without) order by h.key)
        on conflict (project_id, key) do update set body = excluded.body, due_at = excluded.due_at, deliveries = 0,
           published_at = null where outbox.body ->> 'mode' <> 'force'  -- see _terminal
    ), logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, is_pending)
        select p_project, run_id, min(seq), count(*), jsonb_agg(heliograph._result_entry(call_id, tool, child_turn_id,
                   agent_name, parent_step_id, wakes_on_results, status, ended, value, trust, card_id, duration_ms,
                   heliograph._exceeds(value, p_bytes, p_limits.payload_bytes_max)) order by seq),
               turn_id, p_now, bool_or(wakes_on_results)
          from item where p_logs group by run_id, turn_id order by min(seq)
    ), run as (
        update heliograph.runs r set signal_seq = g.seq, pending_reactions = r.pending_reactions + g.pending,
               version = r.version + sign(g.pending)::integer, updated_at = p_now
          from (select run_at, max(seq) as seq, count(*) filter (where wakes_on_results) as pending
                  from item where p_logs group by run_at) g where r.ctid = g.run_at
    ), awaited as (
        select head_at, turn_id, min(resumes_on) as resumes_on, min(suspended_at) as suspended_at,
               array_agg(call_id order by call_id) as calls, bool_or(kind in ('human', 'child')) as is_human
          from item where is_awaited group by head_at, turn_id
    ), head as (
        update heliograph.agent_state_head h
           set status = case when g.resumes then 'dispatched' else 'suspended' end, waiting_tool_count = g.waits,
               resume_deadline = g.deadline, resumes_on = g.resumes_on,
               moved_at = case when g.resumes then greatest(p_now, h.moved_at) else h.moved_at end
          from (select a.head_at, a.suspended_at, o.* from awaited a cross join lateral
                       heliograph._after_results(p_project, a.turn_id, a.calls, a.resumes_on, a.is_human) o) g
         where h.ctid = g.head_at
        returning h.active_agent_turn_id as turn_id, h.agent_id, g.resumes, g.is_human, g.suspended_at
    )
    select jsonb_build_object('resumed', coalesce(jsonb_agg(turn_id order by turn_id) filter (where resumes), '[]'),
                              'woken', coalesce(jsonb_agg(agent_id order by agent_id) filter (where resumes), '[]')),
           jsonb_agg(jsonb_build_object('turn_id', turn_id, 'since', suspended_at, 'resumes', resumes) order by turn_id)
               filter (where is_human),
           (select jsonb_agg(circuit_result order by seq, run_id collate "C") from item where has_circuit),
           (select jsonb_agg(jsonb_build_array(run_id, seq) order by seq, run_id collate "C") from item where p_logs)
      into v_answer, v_human, v_circuits, v_logged from head;
    perform heliograph._feed_results(p_project, v_logged);
    if v_human is not null or v_circuits is not null then
        perform heliograph._count_resolved(p_project, v_human, v_circuits, p_now);
    end if;
    return v_answer;
end $$;

-- _feed_results: make results known that were logged, and look for checkpoints of their runs. p_logged: [[run_id,
--   position]], or null. The caller holds the runs.
create function heliograph._feed_results(p_project text, p_logged jsonb) returns void language plpgsql as $$
begin
    perform heliograph._feed_runs(p_project, array(select l ->> 0 from jsonb_array_elements(p_logged) l order by 1));
    perform heliograph._checkpoint(p_project, g.run_id, g.before)
       from (select l ->> 0 as run_id, min((l ->> 1)::bigint) - 1 as before, max((l ->> 1)::bigint) as upto
               from jsonb_array_elements(p_logged) l group by 1) g
      where heliograph._crosses_checkpoint(g.before, g.upto) order by g.run_id;
end $$;

-- _count_resolved: count the time that turns have waited for humans, and the results for circuit breakers; null: none.
create function heliograph._count_resolved(p_project text, p_human jsonb, p_circuits jsonb, p_now timestamptz)
    returns void language plpgsql as $$
begin
    if p_human is not null then
        perform heliograph._credit_human_wait_time(p_project, p_human, p_now);
    end if;
    if p_circuits is not null then
        perform heliograph._count_circuits(p_project, p_circuits, p_now);
    end if;
end $$;

-- _applicable: the results whose waits are open, each with the rows that it changes, its place in the order of arrival,
--   its place in the log, and the content of its card. is_awaited: the turn is suspended on it. goes_on_without: the
--   turn continues although the delegated turn, or the work of the command, may not have ended. The caller holds the
--   heads and the runs.
create function heliograph._applicable(p_project text, p_results jsonb, p_now timestamptz) returns table (
    turn_id text, call_id text, status text, value jsonb, message_type text, actor text, inbox_id bigint, inbox_at tid,
    goes_on_without boolean, ended text, duration_ms bigint, card_id text, wait_at tid, tool text,
    kind text, trust text, child_turn_id text, agent_id text, run_id text, after_execution text, output_box_id text,
    head_at tid, agent_name text, turn_epoch bigint, parent_step_id text, resumes_on text, is_awaited boolean,
    suspended_at timestamptz, run_at tid, wakes_on_results boolean, has_circuit boolean,
    circuit_result jsonb, place bigint, seq bigint, logged_seq bigint, content jsonb
) language sql stable as $$
    select x.turn_id, x.call_id, x.status, v.value, x.message_type, x.actor, x.inbox_id,
           m.at, x.message_type = 'timeout' or x.is_canceled_sibling or x.may_still_run,
           coalesce(x.more ->> 'outcome', x.status),
           greatest(0, floor(extract(epoch from p_now - w.opened_at) * 1000))::bigint,
           heliograph._result_id(x.turn_id, x.call_id), w.at, w.tool, w.kind, w.trust, w.child_turn_id, w.agent_id,
           w.run_id,
           case when w.may_override and x.output #>> '{__cg_control,after_execution}' in ('suspend', 'terminate')
                then x.output #>> '{__cg_control,after_execution}' else w.after_execution end,
           t.output_box_id, h.at, h.agent_name, h.turn_epoch, h.parent_step_id, h.resumes_on,
           h.status = 'suspended' and w.kind <> 'inline', h.moved_at, r.at, r.wakes_on_results,
           w.circuit is not null, case when w.circuit is not null
                then jsonb_build_object('turn_id', x.turn_id, 'call_id', x.call_id, 'status', x.status, 'circuit',
                                        w.circuit,
                                        'is_recoverable', v.value ->> 'recoverable' is distinct from 'false') end,
           o.last + row_number() over (partition by x.turn_id order by x.n),
           r.signal_seq + row_number() over (partition by w.run_id order by x.turn_id, x.n),
           coalesce(x.seq, r.signal_seq),
           -- one object where that is possible, because joining two costs more
           case when x.status = 'success' and x.more is null
                then jsonb_build_object('call_id', x.call_id, 'tool', w.tool, 'status', x.status, 'trust', w.trust,
                                        'output', v.value)
                else jsonb_build_object('call_id', x.call_id, 'tool', w.tool, 'status', x.status, 'trust', w.trust,
                                        case x.status when 'success' then 'output' else 'error' end, v.value)
                     || coalesce(x.more, '{}') end
           || case when w.kind = 'human' and x.session is not null then jsonb_build_object('session', x.session)
                   else '{}' end
      from rows from (jsonb_to_recordset(p_results) as
           (turn_id text, call_id text, status text, output jsonb, error jsonb, message_type text, actor text,
            inbox_id bigint, more jsonb, session text, is_canceled_sibling boolean, may_still_run boolean,
            trust text, seq bigint)) with ordinality
           x (turn_id, call_id, status, output, error, message_type, actor, inbox_id, more, session,
              is_canceled_sibling, may_still_run, trust, seq, n)
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
           select y.output_box_id from heliograph.agent_turns y
            where y.project_id = p_project and y.agent_turn_id = x.turn_id offset 0) t
     cross join lateral (
           select y.ctid as at, y.* from heliograph.agent_state_head y
            where y.project_id = p_project and y.agent_id = w.agent_id
              and y.active_agent_turn_id = x.turn_id offset 0) h
     cross join lateral (
           select y.ctid as at, y.signal_seq, y.wakes_on_results from heliograph.runs y
            where y.project_id = p_project and y.run_id = w.run_id offset 0) r
     cross join lateral (
           select coalesce(max(y.resolved_position), 0) as last from heliograph.turn_waiting_tools y
            where y.project_id = p_project and y.agent_turn_id = x.turn_id offset 0) o
      left join lateral (
           select y.ctid as at from heliograph.agent_inbox y
            where x.inbox_id is not null and y.project_id = p_project and y.agent_turn_id = x.turn_id
              and y.inbox_id = x.inbox_id offset 0) m on true
$$;

-- _result_entry: the log entry of a result: tool:result, or delegation_response for a delegated turn. p_is_large: the
--   result stands only in its card.
create function heliograph._result_entry(
    p_call_id text, p_tool text, p_child_turn_id text, p_agent text, p_parent text, p_is_pending boolean, p_status text,
    p_ended text, p_value jsonb, p_trust text, p_card_id text, p_duration_ms bigint, p_is_large boolean
) returns jsonb language sql stable as $$
    select jsonb_build_object(
        'name', case when p_child_turn_id is null then 'tool:result' else 'delegation_response' end,
        'agent', p_agent, 'parent', p_parent, 'is_pending', p_is_pending, 'payload', case
        when p_child_turn_id is not null
        then jsonb_build_object('id', p_call_id, 'target_agent', p_tool, 'task_id', p_child_turn_id, 'outcome', p_ended,
                 'status', case when p_ended in ('success', 'partial') then 'completed' else 'failed' end,
                 'duration_ms', p_duration_ms, 'card_id', p_card_id)
             || case when p_is_large then '{}'
                     else jsonb_build_object(case p_status when 'success' then 'result' else 'error' end, p_value) end
        when p_is_large
        then jsonb_build_object('id', p_call_id, 'call_id', p_call_id, 'name', p_tool, 'status', p_status,
                                'card_id', p_card_id)
        else jsonb_build_object('id', p_call_id, 'call_id', p_call_id, 'name', p_tool, 'status', p_status,
                                'card_id', p_card_id,
                                case p_status when 'success' then 'output' else 'error' end, p_value) end)
        || case p_trust when 'untrusted' then jsonb '{"trust": "untrusted"}' else '{}' end
$$;

-- _after_results: the state of a suspended turn after results of p_calls: it resumes if no other call is open, or at
--   once if it resumes on each. waits, deadline and resumes_on are the new values of its head. is_human: a turn
--   that resumes had waited for humans (p_is_human), or a turn that does not resume now waits only for humans.
create function heliograph._after_results(
    p_project text, p_turn_id text, p_calls text[], p_resumes_on text, p_is_human boolean
) returns table (resumes boolean, waits bigint, deadline timestamptz, resumes_on text, is_human boolean)
    language sql stable as $$
    select r.resumes, case when r.resumes then 0 else r.waits end, case when not r.resumes then r.deadline end,
           case when not r.resumes then p_resumes_on end, case when r.resumes then p_is_human else r.is_human end
      from (select o.waits, o.deadline, o.is_human, o.waits = 0 or p_resumes_on = 'each' as resumes
              from heliograph._open_waits(p_project, p_turn_id, p_calls) o) r
$$;

-- _with_canceled_siblings: the results, followed by the calls that they cancel. Where a call that fails fast did not
--   succeed, the other open calls of its step with that mark are canceled, and their errors name the call that failed
--   first. is_canceled_sibling: each delegated turn among them is stopped, because its parent continues without it.
--   The caller holds the heads.
create function heliograph._with_canceled_siblings(p_project text, p_results jsonb) returns jsonb
    language sql stable as $$
    with failed as (
        select distinct on (w.agent_turn_id, w.step_id) w.agent_turn_id, w.step_id, w.tool_call_id, w.tool
          from jsonb_array_elements(p_results) with ordinality r (item, n)
         cross join lateral (
               select x.agent_turn_id, x.step_id, x.tool_call_id, x.tool from heliograph.turn_waiting_tools x
                where x.project_id = p_project and x.agent_turn_id = r.item ->> 'turn_id'
                  and x.tool_call_id = r.item ->> 'call_id'
                  and x.state = 'open' and x.fails_fast and x.step_id is not null offset 0) w
         where r.item ->> 'status' <> 'success'
         order by w.agent_turn_id, w.step_id, r.n
    )
    select p_results || coalesce(jsonb_agg(jsonb_build_object(
               'turn_id', w.agent_turn_id, 'call_id', w.tool_call_id, 'status', 'canceled',
               'message_type', 'tool_result', 'is_canceled_sibling', true, 'error', jsonb_build_object(
                   'code', 'CANCELED', 'recoverable', false, 'first_failed_call', f.tool_call_id,
                   'message', format('call %s (%s) failed first', f.tool_call_id, f.tool)))
               order by w.agent_turn_id, w.position), '[]')
      from failed f
     cross join lateral (
           select x.agent_turn_id, x.tool_call_id, x.position from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = f.agent_turn_id and x.step_id = f.step_id
              and x.state = 'open' and x.fails_fast offset 0) w
     where not exists (select from jsonb_array_elements(p_results) r
                        where r ->> 'turn_id' = w.agent_turn_id and r ->> 'call_id' = w.tool_call_id)
$$;
