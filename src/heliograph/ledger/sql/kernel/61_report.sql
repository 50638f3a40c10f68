-- Reports: what came of a call that a turn waits for, told from outside. Each call is resolved once, by whoever is
-- first: the report, the timeout, the child's end (K4). A report goes by turn and call, so the epoch of its issuer does
-- not matter (K5).

-- report: results of calls (L0-60 to L0-63, L0-112). p_items: [{turn_id, call_id, token, status, result, error,
--   actor}]. status 'success' with result, or 'failed' with error. token: the capability that came with the call's
--   command; a call that was opened without one takes any report from a login that may call this function.
--   Answers [{turn_id, call_id, outcome, resumed, targets}] in the order of p_items. 'applied': the call is resolved;
--   resumed: and with it the turn is ready to go on. 'early': kept, since the turn is at work and has not opened this
--   call yet; suspend applies it. 'duplicate': it was reported before. 'late': it timed out before. 'turn_done'. These
--   six are success to the caller: there is nothing to say again. 'unknown_turn', 'unknown_call', 'bad_token': nothing
--   was stored. 'invalid' with code and message (invalid_result, payload_too_large). 'refused' with code and message
--   (too_many_early): report again once the call is open.
--   targets: what to ring, of the whole call.
--   raises: see _enter
--   locks:  the heads, then the runs, then the commands acknowledged
create function heliograph.report(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_bytes integer;
    v_answers jsonb;
    v_results jsonb;
    v_done jsonb := '{"resumed": [], "woken": []}';
    v_bells jsonb;
    v_others boolean;
begin
    v_bytes := heliograph._check_json(p_items);
    perform heliograph._lock_turns(p_project, array(select i ->> 'turn_id' from jsonb_array_elements(p_items) i));
    with judged as materialized (
        select i.item, i.n, v.verdict, v.verdict ->> 'outcome' as outcome,
               row_number() over (partition by i.item ->> 'turn_id', i.item ->> 'call_id', v.verdict
                                  order by i.n) = 1 as is_first
          from jsonb_array_elements(p_items) with ordinality i (item, n)
          left join lateral (
               select x.agent_id, x.state from heliograph.agent_turns x
                where x.project_id = p_project and x.agent_turn_id = i.item ->> 'turn_id' offset 0) t on true
          left join lateral (
               select x.kind, x.state, x.status, x.token_hash from heliograph.turn_waiting_tools x
                where x.project_id = p_project and x.agent_turn_id = i.item ->> 'turn_id'
                  and x.tool_call_id = i.item ->> 'call_id' offset 0) w on true
         cross join lateral (
               select case
                   when t.state is null then case when exists (
                        select from heliograph.pruned p where p.project_id = p_project and p.id = 'turn:'
                            || (i.item ->> 'turn_id'))
                        then '{"outcome": "turn_done"}'::jsonb else '{"outcome": "unknown_turn"}' end
                   when t.state = 'done' then '{"outcome": "turn_done"}'
                   when w.kind is null and (heliograph._wrong_id('a call id', i.item ->> 'call_id') is not null
                                            or not exists (
                        select from heliograph.agent_state_head h
                         where h.project_id = p_project and h.agent_id = t.agent_id and h.status in ('running',
                                 'dispatched')
                           and h.active_agent_turn_id = i.item ->> 'turn_id'))
                   then '{"outcome": "unknown_call"}'
                   -- nobody outside answers for a child, a timer or the owner itself
                   when w.kind not in ('tool', 'human')
                        or (w.token_hash is not null
                            and w.token_hash is distinct from sha256(convert_to(i.item ->> 'token', 'UTF8')))
                   then '{"outcome": "bad_token"}'
                   else coalesce(
                        case when i.item ->> 'status' is distinct from 'success' or i.item -> 'actor' is not null
                               or octet_length((i.item -> 'result')::text) > v_limits.result_bytes_max
                             then heliograph._invalid_report(i.item, v_limits) end,
                        case when w.kind is null then '{"outcome": "early"}'::jsonb
                             when w.state = 'open' then '{"outcome": "applied"}'
                             when w.status = 'timeout' then '{"outcome": "late"}'
                             else '{"outcome": "duplicate"}' end) end as verdict offset 0) v
    )
    select jsonb_agg(jsonb_build_object('turn_id', item -> 'turn_id', 'call_id', item -> 'call_id')
                     || case when outcome = 'applied' and not is_first then '{"outcome": "duplicate"}' else verdict end
                         order by n),
           jsonb_agg(jsonb_build_object('turn_id', item -> 'turn_id', 'call_id', item -> 'call_id', 'status',
                                        item -> 'status',
                         'output', item -> 'result', 'error', item -> 'error', 'actor', item -> 'actor',
                         'message_type', 'tool_result', 'session', session_user) order by n)
               filter (where outcome = 'applied' and is_first),
           bool_or(outcome in ('early', 'duplicate', 'late') or not is_first)
      into v_answers, v_results, v_others
      from judged;
    if v_results is not null then
        v_done := heliograph._resolve(p_project, v_results, v_bytes, v_limits, true, p_now);
    end if;
    if v_others then
        v_answers := heliograph._keep_others(p_project, p_items, v_answers, v_limits, p_now);
    end if;
    v_bells := heliograph._bells(p_project, array(select jsonb_array_elements_text(v_done -> 'woken')));
    return coalesce((
        select jsonb_agg(a || case n when 1 then v_bells else v_bells - 'woken' end || jsonb_build_object('resumed',
                             a ->> 'outcome' = 'applied' and v_done -> 'resumed' ? (a ->> 'turn_id')) order by n)
          from jsonb_array_elements(v_answers) with ordinality e (a, n)), '[]');
end $$;

-- report_result: one report, for programs in any language: select heliograph.report_result('project', 'turn', 'call',
--   'token', 'success', '{"answer": 42}'). p_result: the result, or the error when p_status is 'failed'. The time is
--   the database's. Answers the outcome; see report. Repeat it until there is an answer: it counts once.
--   raises: see _enter
--   locks:  see report
create function heliograph.report_result(
    p_project text, p_turn_id text, p_call_id text, p_token text, p_status text, p_result jsonb
) returns text language sql set search_path = pg_catalog, pg_temp as $$
    select heliograph._enter(p_project);
    select heliograph.report(p_project, jsonb_build_array(jsonb_build_object(
               'turn_id', p_turn_id, 'call_id', p_call_id, 'token', p_token, 'status', p_status,
               case when p_status = 'failed' then 'error' else 'result' end, p_result)),
               clock_timestamp()) #>> '{0,outcome}'
$$;

-- _invalid_report: null, or why a report says nothing that could be a result; see report.
create function heliograph._invalid_report(p_item jsonb, p_limits heliograph.project_limits) returns jsonb
    language sql immutable as $$
    select case
        when not coalesce(p_item ->> 'status' = 'success' or (p_item ->> 'status' = 'failed'
                                                              and p_item ->> 'error' is not null), false)
        then '{"outcome": "invalid", "code": "invalid_result", '
             '"message": "the status of a report is success, or failed with an error"}'
        when octet_length(p_item ->> 'actor') > 200
        then '{"outcome": "invalid", "code": "invalid_result", "message": "an actor has at most 200 bytes"}'
        else heliograph._refuse_result(p_item, p_limits) || '{"outcome": "invalid"}' end
$$;

-- _keep_others: what is left of reports that were not applied: an early one is kept until suspend can judge its token,
--   of one that came too late the inbox keeps a few per call, to be seen. Answers p_answers with the final outcomes.
--   The caller holds the heads.
create function heliograph._keep_others(
    p_project text, p_items jsonb, p_answers jsonb, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_kept constant integer := 8;  -- of the repeated reports of one call
    v_each record;
    v_answers jsonb := '[]';
begin
    for v_each in
        select a.answer, p_items -> (a.n - 1)::integer as item
          from jsonb_array_elements(p_answers) with ordinality a (answer, n) order by a.n
    loop
        if v_each.answer ->> 'outcome' = 'early' then
            v_each.answer := v_each.answer || heliograph._keep_early(p_project, v_each.item, p_limits, p_now);
        elsif v_each.answer ->> 'outcome' in ('duplicate', 'late') then
            insert into heliograph.agent_inbox
                (project_id, agent_turn_id, agent_id, message_type, status, correlation_id, report_status, actor,
                 next_retry_at, created_at, consumed_at)
            select p_project, w.agent_turn_id, w.agent_id, 'tool_result', 'duplicate', w.tool_call_id,
                   v_each.item ->> 'status', v_each.item ->> 'actor', p_now, p_now, p_now
              from heliograph.turn_waiting_tools w
             where w.project_id = p_project and w.agent_turn_id = v_each.item ->> 'turn_id'
               and w.tool_call_id = v_each.item ->> 'call_id' and w.duplicates < v_kept;
            update heliograph.turn_waiting_tools set duplicates = duplicates + 1
             where project_id = p_project and agent_turn_id = v_each.item ->> 'turn_id'
               and tool_call_id = v_each.item ->> 'call_id';
        end if;
        v_answers := v_answers || v_each.answer;
    end loop;
    return v_answers;
end $$;

-- _keep_early: keep one report of a call that is not open yet. It is kept under the hash of its token, so that a forged
--   one neither takes its place nor is applied for it. Answers {outcome}.
--   The caller holds the head.
create function heliograph._keep_early(p_project text, p_item jsonb, p_limits heliograph.project_limits,
                                       p_now timestamptz)
    returns jsonb language plpgsql as $$
declare
    v_payload jsonb := jsonb_build_object('status', p_item -> 'status', 'result', p_item -> 'result', 'error',
                                          p_item -> 'error', 'session', session_user,
                                          'token_hash', encode(sha256(convert_to(p_item ->> 'token', 'UTF8')), 'hex'));
    v_kept integer;
    v_is_known boolean;
begin
    select count(*), bool_or(i.correlation_id = p_item ->> 'call_id'
                             and i.payload -> 'token_hash' = v_payload -> 'token_hash')
      into v_kept, v_is_known
      from heliograph.agent_inbox i
     where i.project_id = p_project and i.agent_turn_id = p_item ->> 'turn_id' and i.payload is not null;
    if v_is_known then
        return '{"outcome": "duplicate"}';
    elsif v_kept >= p_limits.waits_max then
        return heliograph._rejection('too_many_early',
                                     format('%s reports of calls that the turn has not opened are kept for it; '
                                   'report again once call %s is open', v_kept, p_item ->> 'call_id'));
    end if;
    insert into heliograph.agent_inbox
        (project_id, agent_turn_id, agent_id, message_type, status, correlation_id, payload, actor, next_retry_at,
         created_at)
    select p_project, t.agent_turn_id, t.agent_id, 'tool_result', 'pending', p_item ->> 'call_id', v_payload,
           p_item ->> 'actor', p_now, p_now
      from heliograph.agent_turns t
     where t.project_id = p_project and t.agent_turn_id = p_item ->> 'turn_id';
    return '{"outcome": "early"}';
end $$;

-- _resolve: resolve open waits, and resume the turns that have nothing left to wait for (K4, K15). The one place that
--   does. p_results: [{turn_id, call_id, status, output, error, message_type, actor, inbox_id, more, trust}]; a wait
--   that is not open is passed over. trust: of a child's end, whether its turn had read untrusted content. p_bytes:
--   see _exceeds.
--   message_type: of the inbox row (L0-60, L0-75); null for an inline call, whose owner knows. inbox_id: the row that
--   an early report has already. more: what else the card says. session: the login that has answered for a person,
--   which the card says beside whom it names (S18). p_logs: whether tool:result, of a child delegation_response, is to
--   be logged here. What does not succeed of a step that is to fail fast takes the other calls of the step with it, see
--   _with_canceled_siblings. Per wait: the card tool.result in the output box, the wait with its place in the order of
--   arrival, inbox row, edge report/response (join/response of a child), signal, its command acknowledged (K18), and a
--   child that runs on without its parent told to stop. A turn that sleeps on it: the open waits are counted again,
--   suspended -> dispatched when there are none, or at once when it resumes on each (L0-62, L0-63). It keeps its place
--   in the claim order (K22). Time for which it has waited for people does not count toward its ttl_seconds, see
--   _credit_human_wait_time. Returns {resumed: [turn_id], woken: [agent_id]}.
--   locks:  the commands, ascending by key; the caller holds the heads and the runs
create function heliograph._resolve(
    p_project text, p_results jsonb, p_bytes integer, p_limits heliograph.project_limits, p_logs boolean,
    p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_answer jsonb;
    v_human jsonb;
begin
    if jsonb_path_exists(p_results, '$[*].status ? (@ != "success")') then
        p_results := heliograph._with_canceled_siblings(p_project, p_results);
        p_bytes := octet_length(p_results::text);
    end if;
    -- rows are found by key and changed where they were found, see _terminal; but commands, which a relay may move
    -- meanwhile
    with item as materialized (
        select x.turn_id, x.call_id, x.status, v.value, x.message_type, x.actor, x.inbox_id, x.n,
               x.message_type = 'timeout' or x.is_given_up as goes_on_without, coalesce(x.more ->> 'outcome',
                       x.status) as ended,
               greatest(0, floor(extract(epoch from p_now - w.opened_at) * 1000))::bigint as duration_ms,
               heliograph._result_id(x.turn_id, x.call_id) as card_id,
               w.at as wait_at, w.tool, w.kind, w.trust, w.child_turn_id, w.agent_id, w.run_id,
               case when w.may_override and x.output #>> '{__cg_control,after_execution}' in ('suspend', 'terminate')
                    then x.output #>> '{__cg_control,after_execution}' else w.after_execution end as after_execution,
               t.output_box_id, h.at as head_at, h.agent_name, h.turn_epoch, h.target, h.parent_step_id, h.resumes_on,
               h.status = 'suspended' and w.kind <> 'inline' as is_awaited, h.moved_at as suspended_at, r.at as run_at,
               r.hears_reports, o.last + row_number() over (partition by x.turn_id order by x.n) as position,
               r.signal_seq + row_number() over (partition by w.run_id order by x.turn_id, x.n) as seq,
               -- one object where it can be, joined only where it has to be: this is done for each result there is
               case when x.status = 'success' and x.more is null
                    then jsonb_build_object('call_id', x.call_id, 'tool', w.tool, 'status', x.status, 'trust', w.trust,
                                            'output', v.value)
                    else jsonb_build_object('call_id', x.call_id, 'tool', w.tool, 'status', x.status, 'trust', w.trust,
                                            case x.status when 'success' then 'output' else 'error' end, v.value)
                         || coalesce(x.more, '{}') end
               || case when w.kind = 'human' and x.session is not null then jsonb_build_object('session', x.session)
                   else '{}' end as content
          from rows from (jsonb_to_recordset(p_results) as
               (turn_id text, call_id text, status text, output jsonb, error jsonb, message_type text, actor text,
                inbox_id bigint, more jsonb, session text, is_given_up boolean, trust text)) with ordinality
               x (turn_id, call_id, status, output, error, message_type, actor, inbox_id, more, session, is_given_up,
                  trust, n)
         cross join lateral (select case x.status when 'success' then x.output else x.error end as value) v
         cross join lateral (
               select y.ctid as at, y.*,
                      -- people are trusted, but the error of a question that timed out quotes it; a child as far as its
                      -- own turn was; a tool where its author vouches for it
                      case y.kind when 'human' then case when x.message_type = 'timeout' and y.taint is not null
                          then 'untrusted'
                                                         else 'trusted' end when 'child' then coalesce(x.trust,
                                                                 'trusted')
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
               select y.ctid as at, y.signal_seq, y.hears_reports from heliograph.runs y
                where y.project_id = p_project and y.run_id = w.run_id offset 0) r
         cross join lateral (
               select coalesce(max(y.resolved_position), 0) as last from heliograph.turn_waiting_tools y
                where y.project_id = p_project and y.agent_turn_id = x.turn_id offset 0) o
    ), card as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, card_id, output_box_id, turn_id, turn_epoch, 'tool.result',
               case when heliograph._exceeds(value, p_bytes, p_limits.card_bytes_max)
                    then heliograph._store_content(p_project, content, p_limits.card_bytes_max, p_now)
                    else content end, p_now
          from item order by seq
    ), wait as (
        update heliograph.turn_waiting_tools w
           set state = 'resolved', status = i.status, result_card_id = i.card_id, resolved_position = i.position,
               resolved_at = p_now, after_execution = i.after_execution
          from item i where w.ctid = i.wait_at
    ), message as (
        insert into heliograph.agent_inbox
            (project_id, agent_turn_id, agent_id, message_type, status, turn_epoch, correlation_id, applied,
             report_status, payload_card_id, actor, next_retry_at, created_at)
        select p_project, turn_id, agent_id, message_type, 'pending', turn_epoch, call_id, true, status, card_id, actor,
               p_now, p_now
          from item where message_type is not null and inbox_id is null order by seq
    ), kept as (
        update heliograph.agent_inbox m
           set applied = true, report_status = i.status, payload_card_id = i.card_id, payload = null,
               turn_epoch = i.turn_epoch
          from (select y.at, j.status, j.card_id, j.turn_epoch from item j cross join lateral (
                       select z.ctid as at from heliograph.agent_inbox z
                        where z.project_id = p_project and z.agent_turn_id = j.turn_id
                          and z.inbox_id = j.inbox_id offset 0) y
                 where j.inbox_id is not null) i
         where m.ctid = i.at
    ), edge as (
        insert into heliograph.execution_edges
            (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, call_id, other_turn_id, cause_id,
             created_at)
        select p_project, turn_id, case when child_turn_id is null then 'report' else 'join' end, 'response', run_id,
               agent_id,
               call_id, child_turn_id, case when p_logs then heliograph._signal_id(run_id, seq) else parent_step_id end,
               p_now
          from item where message_type is not null order by seq
    ), acknowledged as (
        update heliograph.outbox o set published_at = p_now, body = heliograph._as_object(o.body) - 'token'
          from (select y.key from heliograph.outbox y
                 where y.project_id = p_project and heliograph._is_unpublished(y.published_at)
                   and y.key = any (array(select 'cmd:' || turn_id || ':' || call_id from item where kind <> 'inline'))
                 order by y.key for update) held
         where o.project_id = p_project and o.key = held.key
    ), orphaned as (
        insert into heliograph.outbox (project_id, key, kind, agent_turn_id, body, created_at, due_at)
        select p_project, 'stop:' || child_turn_id, 'stop', child_turn_id,
               jsonb_build_object('reason', 'the turn that waited for it went on without it', 'mode', 'force'), p_now,
               p_now
          from item where child_turn_id is not null and goes_on_without order by child_turn_id
        on conflict (project_id, key) do update  -- see _terminal
           set body = excluded.body, due_at = excluded.due_at, deliveries = 0, published_at = null
         where outbox.body ->> 'mode' <> 'force'
    ), logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, owed)
        select p_project, run_id, min(seq), count(*), jsonb_agg(jsonb_build_object(
                   'name', case when child_turn_id is null then 'tool:result' else 'delegation_response' end,
                   'agent', agent_name, 'parent', parent_step_id, 'owed', hears_reports, 'payload',
                   case when child_turn_id is not null
                        then jsonb_build_object('id', call_id, 'target_agent', tool, 'task_id', child_turn_id,
                                                'outcome', ended, 'status',
                                 case when ended in ('success', 'partial') then 'completed' else 'failed' end,
                                 'duration_ms', duration_ms,
                                 'card_id', card_id)
                             || case when heliograph._exceeds(value, p_bytes, p_limits.payload_bytes_max) then '{}'
                                     else jsonb_build_object(case status when 'success' then 'result' else 'error' end,
                                                             value) end
                        -- what is too large for a log is left to the card
                        when heliograph._exceeds(value, p_bytes, p_limits.payload_bytes_max)
                        then jsonb_build_object('id', call_id, 'call_id', call_id, 'name', tool, 'status', status,
                                                'card_id', card_id)
                        else jsonb_build_object('id', call_id, 'call_id', call_id, 'name', tool, 'status', status,
                                                'card_id', card_id,
                                 case status when 'success' then 'output' else 'error' end, value) end)
                   || case trust when 'untrusted' then jsonb '{"trust": "untrusted"}' else '{}' end order by seq),
                   turn_id, p_now, bool_or(hears_reports)
          from item where p_logs group by run_id, turn_id order by min(seq)
    ), run as (
        update heliograph.runs r
           set signal_seq = g.seq, owed = r.owed + g.owed, version = r.version + sign(g.owed)::integer,
               updated_at = p_now
          from (select run_at, max(seq) as seq, count(*) filter (where hears_reports) as owed from item where p_logs
                group by run_at) g
         where r.ctid = g.run_at
    ), head as (
        update heliograph.agent_state_head h
           set status = case when g.resumes then 'dispatched' else 'suspended' end,
               waiting_tool_count = case when g.resumes then 0 else g.waits end,
               resume_deadline = case when not g.resumes then g.deadline end,
               resumes_on = case when not g.resumes then h.resumes_on end,
               moved_at = case when g.resumes then greatest(p_now, h.moved_at) else h.moved_at end
          from (select s.head_at, s.suspended_at, o.waits, o.deadline, o.waits = 0 or s.resumes_on = 'each' as resumes,
                       case when o.waits = 0 or s.resumes_on = 'each' then s.has_people else o.is_people
                           end as has_people
                  from (select head_at, turn_id, min(resumes_on) as resumes_on, array_agg(call_id
                          order by call_id) as calls,
                               min(suspended_at) as suspended_at, bool_or(kind in ('human', 'child')) as has_people
                          from item where is_awaited group by head_at, turn_id) s
                 cross join lateral (
                       select count(*) as waits, min(y.deadline) as deadline, bool_and(y.kind = 'human') as is_people
                         from heliograph.turn_waiting_tools y
                        where y.project_id = p_project and y.agent_turn_id = s.turn_id and y.state = 'open'
                          and y.kind <> 'inline' and y.tool_call_id <> all (s.calls) offset 0) o) g
         where h.ctid = g.head_at
        returning h.active_agent_turn_id, h.agent_id, g.resumes, g.has_people, g.suspended_at
    )
    select jsonb_build_object(
               'resumed', coalesce(jsonb_agg(active_agent_turn_id order by active_agent_turn_id) filter (where resumes),
                                   '[]'),
               'woken', coalesce(jsonb_agg(agent_id order by agent_id) filter (where resumes), '[]')),
           jsonb_agg(jsonb_build_object('turn_id', active_agent_turn_id, 'since', suspended_at, 'resumes', resumes)
                     order by active_agent_turn_id) filter (where has_people)
      into v_answer, v_human from head;
    if v_human is not null then
        perform heliograph._credit_human_wait_time(p_project, v_human, p_now);
    end if;
    return v_answer;
end $$;

-- _with_canceled_siblings: results, and after them what follows from those that did not succeed, of calls that were
--   made to fail fast: the other such calls of their step that are open are canceled, and say which was the first to
--   fail. Each child among them is told to stop, since its parent goes on without it.
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
               'turn_id', w.agent_turn_id, 'call_id', w.tool_call_id, 'status', 'canceled', 'message_type',
               'tool_result',
               'is_given_up', true, 'error', jsonb_build_object('code', 'CANCELED', 'recoverable', false,
                                                                'failed_first', f.tool_call_id,
                   'message', format('call %s (%s) failed first', f.tool_call_id, f.tool))) order by w.agent_turn_id,
                   w.position), '[]')
      from failed f
     cross join lateral (
           select x.agent_turn_id, x.tool_call_id, x.position from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = f.agent_turn_id and x.step_id = f.step_id
              and x.state = 'open' and x.fails_fast offset 0) w
     where not exists (select from jsonb_array_elements(p_results) r
                        where r ->> 'turn_id' = w.agent_turn_id and r ->> 'call_id' = w.tool_call_id)
$$;
