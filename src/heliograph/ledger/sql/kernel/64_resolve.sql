-- Resolving: the result of a call closes its wait, and the turn resumes when nothing else is open (K4, K15).

-- _resolve: resolve open waits, and resume the turns that wait for nothing else. _record does it for record_call.
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
    v_turn_id text[]; v_call_id text[]; v_status text[]; v_value jsonb[]; v_message_type text[]; v_actor text[];
    v_session text[]; v_more jsonb[]; v_continues_without boolean[]; v_seq bigint[];
    v_agent_id text[]; v_run_id text[]; v_child_turn_id text[]; v_kind text[]; v_tool text[]; v_trust text[];
    v_after_execution text[]; v_circuit jsonb[]; v_opened_at timestamptz[]; v_box_id text[]; v_epoch bigint[];
    v_agent text[]; v_parent text[]; v_is_pending boolean[]; v_place bigint[];
    v_wait_at tid[]; v_early_at tid[]; v_run_at tid[]; v_head_at tid[];
    v_content jsonb[]; v_entry jsonb[];
    v_woken jsonb := '{"resumed": [], "woken": []}';
begin
    if jsonb_path_exists(p_results, '$[*].status ? (@ != "success")') then
        p_results := heliograph._with_canceled_siblings(p_project, p_results);
        p_bytes := octet_length(p_results::text);
    end if;
    select array_agg(a.turn_id), array_agg(a.call_id), array_agg(a.status), array_agg(a.value),
           array_agg(a.message_type), array_agg(a.actor), array_agg(a.session), array_agg(a.more),
           array_agg(a.continues_without), array_agg(a.seq), array_agg(a.agent_id), array_agg(a.run_id),
           array_agg(a.child_turn_id), array_agg(a.kind), array_agg(a.tool), array_agg(a.trust),
           array_agg(a.after_execution), array_agg(a.circuit), array_agg(a.opened_at), array_agg(a.box_id),
           array_agg(a.epoch), array_agg(a.agent), array_agg(a.parent), array_agg(a.is_pending), array_agg(a.place),
           array_agg(a.wait_at), array_agg(a.early_at), array_agg(a.run_at), array_agg(a.head_at)
      into v_turn_id, v_call_id, v_status, v_value, v_message_type, v_actor, v_session, v_more, v_continues_without,
           v_seq, v_agent_id, v_run_id, v_child_turn_id, v_kind, v_tool, v_trust, v_after_execution, v_circuit,
           v_opened_at, v_box_id, v_epoch, v_agent, v_parent, v_is_pending, v_place, v_wait_at, v_early_at, v_run_at,
           v_head_at
      from (select * from heliograph._applicable(p_project, p_results, p_logs) x
             order by x.run_id collate "C", x.turn_id collate "C", x.n) a;
    -- what follows has one number for each result; those of a run, and of a turn, are side by side
    for n in 1 .. coalesce(cardinality(v_turn_id), 0) loop
        v_place[n] := case when v_turn_id[n - 1] = v_turn_id[n] then v_place[n - 1] else v_place[n] end + 1;
        if p_logs then
            v_seq[n] := case when v_run_id[n - 1] = v_run_id[n] then v_seq[n - 1] else v_seq[n] end + 1;
            v_entry[n] := heliograph._result_entry(
                v_call_id[n], v_tool[n], v_child_turn_id[n], v_agent[n], v_parent[n], v_is_pending[n], v_status[n],
                v_more[n], v_value[n], v_trust[n], heliograph._result_id(v_turn_id[n], v_call_id[n]),
                p_now - v_opened_at[n], heliograph._exceeds(v_value[n], p_bytes, p_limits.payload_bytes_max));
        end if;
        v_content[n] := jsonb_build_object('call_id', v_call_id[n], 'tool', v_tool[n], 'status', v_status[n],
            'trust', v_trust[n], case v_status[n] when 'success' then 'output' else 'error' end, v_value[n]);
        if v_more[n] is not null then
            v_content[n] := v_content[n] || v_more[n];
        end if;
        if v_kind[n] = 'human' and v_session[n] is not null then
            v_content[n] := v_content[n] || jsonb_build_object('session', v_session[n]);
        end if;
        if heliograph._exceeds(v_value[n], p_bytes, p_limits.card_bytes_max) then
            v_content[n] := heliograph._put_blob(p_project, v_content[n], p_now);
        end if;
    end loop;
    if v_turn_id is null then
        return v_woken;
    end if;
    insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
    select p_project, heliograph._result_id(v_turn_id[n], v_call_id[n]), v_box_id[n], v_turn_id[n], v_epoch[n],
           'tool.result', v_content[n], p_now
      from generate_subscripts(v_turn_id, 1) n;
    update heliograph.turn_waiting_tools w
       set state = 'resolved', status = v_status[n], resolved_position = v_place[n], resolved_at = p_now,
           result_card_id = heliograph._result_id(v_turn_id[n], v_call_id[n]), after_execution = v_after_execution[n],
           resolved_seq = v_seq[n]
      from generate_subscripts(v_turn_id, 1) n where w.ctid = v_wait_at[n];
    if array_remove(v_message_type, null) <> '{}' then
        perform heliograph._write_messages(
            p_project, v_turn_id, v_call_id, v_status, v_message_type, v_actor, v_agent_id, v_epoch, v_early_at,
            p_now);
    end if;
    if array_remove(v_kind, 'inline') <> '{}' then
        perform heliograph._acknowledge_calls(p_project, v_turn_id, v_call_id, v_kind, v_child_turn_id,
                                              v_continues_without, p_now);
    end if;
    if p_logs then
        perform heliograph._log_results(p_project, v_run_id, v_run_at, v_turn_id, v_seq, v_entry, v_is_pending, p_now);
    end if;
    if array_remove(v_head_at, null) <> '{}' then
        v_woken := heliograph._resume_turns(p_project, v_head_at, v_turn_id, v_kind, p_now);
    end if;
    if array_remove(v_circuit, null) <> '{}' then
        perform heliograph._count_circuits(p_project, to_jsonb(array_remove(v_circuit, null)), p_now);
    end if;
    return v_woken;
end $$;

-- _write_messages: write the messages about results. p_early_at: the message of an early report, which
--   becomes the one of its result.
create function heliograph._write_messages(
    p_project text, p_turn_id text[], p_call_id text[], p_status text[], p_message_type text[], p_actor text[],
    p_agent_id text[], p_epoch bigint[], p_early_at tid[], p_now timestamptz
) returns void language plpgsql as $$
begin
    insert into heliograph.agent_inbox (project_id, agent_turn_id, agent_id, message_type, status, turn_epoch,
        correlation_id, applied, report_status, payload_card_id, actor, next_retry_at, created_at)
    select p_project, p_turn_id[n], p_agent_id[n], p_message_type[n], 'pending', p_epoch[n], p_call_id[n], true,
           p_status[n], heliograph._result_id(p_turn_id[n], p_call_id[n]), p_actor[n], p_now, p_now
      from generate_subscripts(p_turn_id, 1) n where p_message_type[n] is not null and p_early_at[n] is null;
    if array_remove(p_early_at, null) <> '{}' then
        update heliograph.agent_inbox m
           set applied = true, report_status = p_status[n], turn_epoch = p_epoch[n], payload = null,
               payload_card_id = heliograph._result_id(p_turn_id[n], p_call_id[n])
          from generate_subscripts(p_turn_id, 1) n where m.ctid = p_early_at[n];
    end if;
end $$;

-- _acknowledge_calls: acknowledge the commands of resolved calls (K18). p_continues_without: the turn continues
--   although the delegated turn, or the work of the command, may not have ended, so that turn is stopped, or the work
--   is halted.
--   locks:  the commands, ascending by key
create function heliograph._acknowledge_calls(
    p_project text, p_turn_id text[], p_call_id text[], p_kind text[], p_child_turn_id text[],
    p_continues_without boolean[], p_now timestamptz
) returns void language plpgsql as $$
declare
    v_keys constant text[] := array(
        select 'cmd:' || p_turn_id[n] || ':' || p_call_id[n] from generate_subscripts(p_turn_id, 1) n
         where p_kind[n] <> 'inline' order by 1);
    v_acknowledged text[];
begin
    with acknowledged as (  -- by key, because a relay may move them meanwhile
        update heliograph.outbox o set published_at = p_now, body = heliograph._as_object(o.body) - 'token'
          from (select y.key from heliograph.outbox y
                 where y.project_id = p_project and heliograph._is_unpublished(y.published_at) and y.key = any (v_keys)
                 order by y.key for update) locked
         where o.project_id = p_project and o.key = locked.key
        returning o.key
    )
    select array_agg(a.key order by a.key) into v_acknowledged from acknowledged a;
    if true = any (p_continues_without) then
        insert into heliograph.outbox (project_id, key, kind, agent_turn_id, call_id, body, created_at, due_at)
        (select p_project, 'stop:' || p_child_turn_id[n], 'stop', p_child_turn_id[n], null,
                '{"reason": "the turn that waited for it went on without it", "mode": "force"}'::jsonb, p_now, p_now
           from generate_subscripts(p_turn_id, 1) n
          where p_child_turn_id[n] is not null and p_continues_without[n] order by p_child_turn_id[n] collate "C")
        union all
        (select h.*
           from generate_subscripts(p_turn_id, 1) n
          cross join lateral (
                select y as command from heliograph.outbox y
                 where y.project_id = p_project and y.key = 'cmd:' || p_turn_id[n] || ':' || p_call_id[n]
                   and y.key = any (v_acknowledged) offset 0) o
          cross join lateral heliograph._halt_of(o.command, p_now) h
          where p_continues_without[n] order by h.key)
        on conflict (project_id, key) do update set body = excluded.body, due_at = excluded.due_at, deliveries = 0,
           published_at = null where outbox.body ->> 'mode' <> 'force';  -- see _terminal
    end if;
end $$;

-- _log_results: append results to the logs of their runs, make them known, and look for checkpoints. p_seq: the
--   position of each; those of a run are consecutive.
--   The caller holds the runs.
create function heliograph._log_results(
    p_project text, p_run_id text[], p_run_at tid[], p_turn_id text[], p_seq bigint[], p_entry jsonb[],
    p_is_pending boolean[], p_now timestamptz
) returns void language plpgsql as $$
begin
    insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, is_pending)
    select p_project, p_run_id[n], min(p_seq[n]), count(*), jsonb_agg(p_entry[n] order by p_seq[n]), p_turn_id[n],
           p_now, bool_or(p_is_pending[n])
      from generate_subscripts(p_run_id, 1) n group by p_run_id[n], p_turn_id[n];
    update heliograph.runs r
       set signal_seq = g.seq, pending_reactions = r.pending_reactions + g.pending,
           version = r.version + sign(g.pending)::integer, updated_at = p_now
      from (select p_run_at[n] as at, max(p_seq[n]) as seq, count(*) filter (where p_is_pending[n]) as pending
              from generate_subscripts(p_run_id, 1) n group by 1) g
     where r.ctid = g.at;
    perform heliograph._feed_runs(p_project, p_run_id);
    if exists (select from unnest(p_seq) s where heliograph._crosses_checkpoint(s - 1, s)) then
        perform heliograph._checkpoint(p_project, g.run_id, g.before)
           from (select p_run_id[n] as run_id, min(p_seq[n]) - 1 as before, max(p_seq[n]) as upto
                   from generate_subscripts(p_run_id, 1) n group by 1) g
          where heliograph._crosses_checkpoint(g.before, g.upto) order by g.run_id;
    end if;
end $$;

-- _resume_turns: count the open calls of suspended turns after results, and resume those that wait for nothing else.
--   p_head_at: the head of the turn; null if it is not suspended on the call. p_kind: of the call.
--   Returns {resumed: [turn_id], woken: [agent_id]}.
--   The caller holds the heads.
create function heliograph._resume_turns(
    p_project text, p_head_at tid[], p_turn_id text[], p_kind text[], p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_resumed jsonb;
    v_woken jsonb;
    v_human jsonb;  -- the turns whose waiting for humans began or ended, see _credit_human_wait_time
begin
    with awaited as materialized (
        select a.at, h.agent_id, a.turn_id, h.moved_at, o.*
          from (select p_head_at[n] as at, p_turn_id[n] as turn_id, bool_or(p_kind[n] in ('human', 'child')) as is_human
                  from generate_subscripts(p_turn_id, 1) n where p_head_at[n] is not null group by 1, 2) a
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

-- _result_entry: the log entry of a result: tool:result, or delegation_response for a delegated turn. p_more: further
--   fields of its card. p_is_large: the result stands only in its card.
create function heliograph._result_entry(
    p_call_id text, p_tool text, p_child_turn_id text, p_agent text, p_parent text, p_is_pending boolean, p_status text,
    p_more jsonb, p_value jsonb, p_trust text, p_card_id text, p_duration interval, p_is_large boolean
) returns jsonb language plpgsql stable as $$
declare
    v_payload jsonb;
    v_outcome text;
    v_entry jsonb;
begin
    if p_child_turn_id is null then
        v_payload := jsonb_build_object('id', p_call_id, 'call_id', p_call_id, 'name', p_tool, 'status', p_status,
                                        'card_id', p_card_id);
    else
        v_outcome := coalesce(p_more ->> 'outcome', p_status);
        v_payload := jsonb_build_object(
            'id', p_call_id, 'target_agent', p_tool, 'task_id', p_child_turn_id, 'outcome', v_outcome, 'status',
            case when v_outcome in ('success', 'partial') then 'completed' else 'failed' end, 'duration_ms',
            greatest(0, floor(extract(epoch from p_duration) * 1000))::bigint, 'card_id', p_card_id);
    end if;
    if not p_is_large then
        v_payload := v_payload || jsonb_build_object(
            case when p_status <> 'success' then 'error' when p_child_turn_id is null then 'output' else 'result' end,
            p_value);
    end if;
    v_entry := jsonb_build_object(
        'name', case when p_child_turn_id is null then 'tool:result' else 'delegation_response' end, 'agent', p_agent,
        'parent', p_parent, 'payload', v_payload);
    if p_is_pending then
        v_entry := v_entry || '{"is_pending": true}';
    end if;
    return case when p_trust = 'untrusted' then v_entry || '{"trust": "untrusted"}' else v_entry end;
end $$;

-- _applicable: the results whose waits are open, each with the rows that it changes. seq: the newest signal of the run,
--   or the last one that the owner logged with the result. place: that of the turn's last result before this call.
--   continues_without: the turn continues although the delegated turn, or the work of the command, may not have ended.
--   early_at: the message of an early report. head_at: the head, if the turn is suspended on the call. The caller holds
--   the heads and the runs.
create function heliograph._applicable(p_project text, p_results jsonb, p_logs boolean) returns table (
    n bigint, turn_id text, call_id text, status text, value jsonb, message_type text, actor text, session text,
    more jsonb, continues_without boolean, seq bigint, agent_id text, run_id text, child_turn_id text, kind text,
    tool text, trust text, after_execution text, circuit jsonb, opened_at timestamptz, box_id text, epoch bigint,
    agent text, parent text, is_pending boolean, place integer, wait_at tid, early_at tid, run_at tid, head_at tid
) language sql stable as $$
    select x.n, x.turn_id, x.call_id, x.status, v.value, x.message_type, x.actor, x.session, x.more,
           x.message_type = 'timeout' or x.is_canceled_sibling or x.may_still_run,
           case when p_logs then r.signal_seq else coalesce(x.seq, r.signal_seq) end, w.agent_id, w.run_id,
           w.child_turn_id, w.kind, w.tool, w.trust,
           case when w.may_override and x.output #>> '{__cg_control,after_execution}' in ('suspend', 'terminate')
                then x.output #>> '{__cg_control,after_execution}' else w.after_execution end,
           case when w.circuit is not null
                then jsonb_build_object('turn_id', x.turn_id, 'call_id', x.call_id, 'status', x.status, 'circuit',
                                        w.circuit,
                                        'is_recoverable', v.value ->> 'recoverable' is distinct from 'false') end,
           w.opened_at, t.output_box_id, h.turn_epoch, h.agent_name, h.parent_step_id, r.wakes_on_results, o.last, w.at,
           m.at, r.at, case when h.status = 'suspended' and w.kind <> 'inline' then h.at end
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
           select y.ctid as at, y.turn_epoch, y.agent_name, y.status,
                  heliograph._signal_id(y.run_id, y.activation_seq) as parent_step_id
             from heliograph.agent_state_head y
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
