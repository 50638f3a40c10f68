-- Reports: external programs report the results of calls that turns wait for. The first result of a call counts: a
-- report, a timeout or the end of a delegated turn (K4). A report names turn and call, not the epoch of the owner that
-- made the call (K5).

-- report: record the results of calls (L0-60 to L0-63, L0-112).
--   p_items: [{turn_id, call_id, token, status, result, error, actor, may_still_run}]. status: 'success' with result,
--   or 'failed' with error. token: the capability that came with the call's command. A call that was opened without a
--   token accepts reports from every login that may execute this function. may_still_run: the reporter does not know
--   whether the work has ended, so the halt of its command is written.
--   Returns [{turn_id, call_id, outcome, resumed, targets}] in the order of p_items. 'applied': the call is resolved;
--   resumed: the turn resumes. 'early': the report is kept, because the turn is running and has not opened this call
--   yet; suspend applies it. 'duplicate': a result was reported before. 'late': the call has timed out. 'turn_done'.
--   After these five, do not report again. 'unknown_turn', 'unknown_call', 'bad_token': nothing is
--   stored. 'invalid' with code and message: invalid_result, payload_too_large. 'rejected' with code and message:
--   too_many_early; report again once the call is open. targets: the workers to notify, for the whole call.
--   raises: see _enter; 22023 for a token or an actor that is no string, a may_still_run that is no boolean
--   locks:  the heads, then the runs, then the commands acknowledged
create function heliograph.report(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_bytes integer;
    v_turns text[];
    v_answers jsonb;
    v_results jsonb;
    v_done jsonb := '{"resumed": [], "woken": []}';
    v_bells jsonb;
    v_targets jsonb;
    v_others boolean;
begin
    v_bytes := heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items,
                                   '{turn_id,call_id,token,status,result,error,actor,may_still_run}');
    perform heliograph._check_type('p_items[]', p_items, 'token', 'string');
    perform heliograph._check_type('p_items[]', p_items, 'actor', 'string');
    perform heliograph._check_type('p_items[]', p_items, 'may_still_run', 'boolean');
    v_turns := heliograph._lock_turns(p_project, array(select i ->> 'turn_id' from jsonb_array_elements(p_items) i));
    with judged as materialized (
        select i.item, i.n, v.verdict, v.verdict ->> 'outcome' as outcome,
               row_number() over (partition by i.item ->> 'turn_id', i.item ->> 'call_id', v.verdict
                                  order by i.n) = 1 as is_first
          from jsonb_array_elements(p_items) with ordinality i (item, n)
          left join lateral (
               select x.agent_id, x.state from heliograph.agent_turns x
                where x.project_id = p_project and x.agent_turn_id = i.item ->> 'turn_id' offset 0) t
            on i.item ->> 'turn_id' = any (v_turns)
          left join lateral (
               select x.kind, x.state, x.status, x.token_hash from heliograph.turn_waiting_tools x
                where x.project_id = p_project and x.agent_turn_id = i.item ->> 'turn_id'
                  and x.tool_call_id = i.item ->> 'call_id' offset 0) w on true
         cross join lateral (
               select case
                   when t.state is null then case when exists (
                        select from heliograph.pruned p
                         where p.project_id = p_project and p.id = 'turn:' || (i.item ->> 'turn_id'))
                        then '{"outcome": "turn_done"}'::jsonb else '{"outcome": "unknown_turn"}' end
                   when t.state = 'done' then '{"outcome": "turn_done"}'
                   when w.kind is null and (heliograph._wrong_id('a call id', i.item ->> 'call_id') is not null
                                            or not exists (
                        select from heliograph.agent_state_head h
                         where h.project_id = p_project and h.agent_id = t.agent_id
                           and h.status in ('running', 'dispatched')
                           and h.active_agent_turn_id = i.item ->> 'turn_id'))
                   then '{"outcome": "unknown_call"}'
                   -- external programs report only these kinds, not delegated turns, timers or inline calls
                   when w.kind not in ('tool', 'human')
                        or (w.token_hash is not null
                            and w.token_hash is distinct from sha256(convert_to(i.item ->> 'token', 'UTF8')))
                   then '{"outcome": "bad_token"}'
                   else coalesce(
                        case when i.item ->> 'status' is distinct from 'success' or i.item -> 'actor' is not null
                               or heliograph._exceeds(i.item -> 'result', v_bytes, v_limits.result_bytes_max)
                             then heliograph._invalid_report(i.item, v_limits) end,
                        case when w.kind is null then '{"outcome": "early"}'::jsonb
                             when w.state = 'open' then '{"outcome": "applied"}'
                             when w.status = 'timeout' then '{"outcome": "late"}'
                             else '{"outcome": "duplicate"}' end) end as verdict offset 0) v
    )
    select jsonb_agg(jsonb_build_object('turn_id', item -> 'turn_id', 'call_id', item -> 'call_id')
                     || case when outcome = 'applied' and not is_first then '{"outcome": "duplicate"}' else verdict end
                     order by n),
           jsonb_agg(jsonb_build_object('turn_id', item -> 'turn_id', 'call_id', item -> 'call_id',
                         'status', item -> 'status', 'output', item -> 'result', 'error', item -> 'error',
                         'actor', item -> 'actor', 'message_type', 'tool_result', 'session', session_user,
                         'may_still_run', item -> 'may_still_run') order by n)
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
    v_targets := v_bells - 'woken';
    return coalesce((
        select jsonb_agg(a || case n when 1 then v_bells else v_targets end
                         || case when a ->> 'outcome' = 'applied' and v_done -> 'resumed' ? (a ->> 'turn_id')
                                 then jsonb '{"resumed": true}' else '{"resumed": false}' end order by n)
          from jsonb_array_elements(v_answers) with ordinality e (a, n)), '[]');
end $$;

-- report_result: report one result from any language: select heliograph.report_result('project', 'turn', 'call',
--   'token', 'success', '{"answer": 42}'). p_result: the result, or the error if p_status is 'failed'. The time is that
--   of the database. Returns the outcome, see report. Repeat the call until it returns: a report counts once.
--   raises: see _enter
--   locks:  see report
create function heliograph.report_result(
    p_project text, p_turn_id text, p_call_id text, p_token text, p_status text, p_result jsonb
) returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    return heliograph.report(v_project, jsonb_build_array(jsonb_build_object(
               'turn_id', p_turn_id, 'call_id', p_call_id, 'token', p_token, 'status', p_status,
               case when p_status = 'failed' then 'error' else 'result' end, p_result)),
               clock_timestamp()) #>> '{0,outcome}';
end $$;

-- _invalid_report: null, or the answer to a report without a valid result; see report.
create function heliograph._invalid_report(p_item jsonb, p_limits heliograph.project_limits) returns jsonb
    language sql immutable as $$
    select case
        when not coalesce(p_item ->> 'status' = 'success' or (p_item ->> 'status' = 'failed'
                                                              and p_item ->> 'error' is not null), false)
        then '{"outcome": "invalid", "code": "invalid_result", '
             '"message": "the status of a report must be success, or failed with an error"}'
        when octet_length(p_item ->> 'actor') > 200
        then '{"outcome": "invalid", "code": "invalid_result", "message": "actor must have at most 200 bytes"}'
        else heliograph._reject_result(p_item, p_limits) || '{"outcome": "invalid"}' end
$$;

-- _keep_others: store the reports that were not applied. An early report is kept until suspend can check its token. Of
--   the duplicate and late reports, the inbox keeps a few per call, for display. Returns p_answers with the final
--   outcomes. The caller holds the heads.
create function heliograph._keep_others(
    p_project text, p_items jsonb, p_answers jsonb, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_kept constant integer := 8;  -- duplicate and late reports that are stored per call
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
