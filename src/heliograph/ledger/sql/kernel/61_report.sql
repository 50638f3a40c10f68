-- Reports: external programs report the results of calls that turns wait for. The first result of a call counts: a
-- report, a timeout or the end of a delegated turn (K4). A report names turn and call, not the epoch of the owner that
-- made the call (K5).

-- report: record the results of calls (L0-60 to L0-63, L0-112).
--   p_items: {turn_id, call_id, token, status, result, error, actor, may_still_run}, as one array for each key. status:
--   'success' with result, or 'failed' with error. token: the capability that came with the call's command. A call that
--   was opened without a token accepts reports from every login that may execute this function. may_still_run: the
--   reporter does not know whether the work has ended, so the halt of its command is written.
--   Returns rows {turn_id, call_id, outcome, resumed, targets, woken, code, message} in the order of the items.
--   'applied': the call is resolved; resumed: the turn resumes. 'early': the report is kept, because the turn is
--   running and has not opened this call yet; suspend applies it. 'duplicate': a result was reported before. 'late':
--   the call has timed out. 'turn_done'. After these five, do not report again. 'unknown_turn', 'unknown_call',
--   'bad_token': nothing is stored. 'invalid' with code and message: invalid_result, payload_too_large. 'rejected' with
--   code and message: too_many_early; report again once the call is open. targets: the workers to notify, for the whole
--   call. woken: in the first row, the agents that the call woke.
--   raises: see _enter; 22023 for arrays of the wrong shape
--   locks:  the heads, then the runs, then the commands deleted
create function heliograph.report(
    p_project text, p_turn_id text[], p_call_id text[], p_token text[], p_status text[], p_result jsonb[],
    p_error jsonb[], p_actor text[], p_may_still_run boolean[], p_now timestamptz
) returns table (
    turn_id text, call_id text, outcome text, resumed boolean, targets text[], woken text[], code text, message text
) language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_bytes integer;
    v_turns text[];
    v_outcomes text[];
    v_answers jsonb[];  -- of the reports that are rejected
    v_calls text[] := '{}';
    v_results heliograph.call_result[] := '{}';
    v_done jsonb := '{"resumed": [], "woken": []}';
    v_woken text[] := '{}';
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_turn_id), heliograph._shape(p_call_id), heliograph._shape(p_token),
        heliograph._shape(p_status), heliograph._shape(p_result), heliograph._shape(p_error),
        heliograph._shape(p_actor), heliograph._shape(p_may_still_run)]);
    v_bytes := heliograph._check_columns(p_result || p_error);
    v_turns := heliograph._lock_turns(p_project, p_turn_id);
    v_outcomes := array(select j.outcome from heliograph._judge_reports(p_project, v_turns, p_turn_id, p_call_id,
                                                                        p_token) j order by j.n);
    for n in 1 .. cardinality(p_turn_id) loop
        if v_outcomes[n] in ('applied', 'early', 'late', 'duplicate')
           and (p_status[n] is distinct from 'success' or p_actor[n] is not null
                or heliograph._exceeds(p_result[n], v_bytes, v_limits.result_bytes_max)) then
            v_answers[n] := heliograph._invalid_report(p_call_id[n], p_status[n], p_result[n], p_error[n], p_actor[n],
                                                       v_limits);
            v_outcomes[n] := coalesce(v_answers[n] ->> 'outcome', v_outcomes[n]);
        end if;
        if v_outcomes[n] = 'applied' and p_turn_id[n] || ':' || p_call_id[n] = any (v_calls) then
            v_outcomes[n] := 'duplicate';  -- of an earlier report of this call; an id has no colon
        elsif v_outcomes[n] = 'applied' then
            v_calls := v_calls || (p_turn_id[n] || ':' || p_call_id[n]);
            v_results := v_results || (p_turn_id[n], p_call_id[n], p_status[n], nullif(p_result[n], 'null'),
                                       nullif(p_error[n], 'null'), 'tool_result', p_actor[n], null, null, session_user,
                                       null, p_may_still_run[n], null)::heliograph.call_result;
        end if;
    end loop;
    if cardinality(v_results) > 0 then
        v_done := heliograph._resolve(p_project, v_results, v_bytes, v_limits, p_now);
        v_woken := array(select jsonb_array_elements_text(v_done -> 'woken'));
    end if;
    targets := heliograph._queues(p_project, v_woken);
    for n in 1 .. cardinality(p_turn_id) loop
        if v_outcomes[n] = 'early' then
            v_answers[n] := heliograph._keep_early(p_project, p_turn_id[n], p_call_id[n], p_token[n], p_status[n],
                                                   p_result[n], p_error[n], p_actor[n], v_limits, p_now);
        elsif v_outcomes[n] in ('duplicate', 'late') then
            perform heliograph._keep_duplicate(p_project, p_turn_id[n], p_call_id[n], p_status[n], p_actor[n], p_now);
        end if;
        turn_id := p_turn_id[n];
        call_id := p_call_id[n];
        outcome := coalesce(v_answers[n] ->> 'outcome', v_outcomes[n]);
        code := v_answers[n] ->> 'code';
        message := v_answers[n] ->> 'message';
        resumed := outcome = 'applied' and v_done -> 'resumed' ? turn_id;
        woken := case when n = 1 and cardinality(v_woken) > 0 then v_woken end;
        return next;
    end loop;
end $$;

-- _judge_reports: the outcome of each report, before its result is checked and compared with other reports; see report.
--   p_turns: the turns that exist.
--   The caller holds the heads.
create function heliograph._judge_reports(
    p_project text, p_turns text[], p_turn_id text[], p_call_id text[], p_token text[]
) returns table (n integer, outcome text) language sql stable as $$
    select i.n, case
               when t.state is null then case when (
                    select true from heliograph.pruned p
                     where p.project_id = p_project and p.id = 'turn:' || p_turn_id[i.n])
                    then 'turn_done' else 'unknown_turn' end
               when t.state = 'done' then 'turn_done'
               -- no exists: for many items, PostgreSQL would read all heads once instead of one for each item
               when w.kind is null and (heliograph._wrong_id('a call id', p_call_id[i.n]) is not null or (
                    select h.status in ('running', 'dispatched') and h.active_agent_turn_id = p_turn_id[i.n]
                      from heliograph.agent_state_head h
                     where h.project_id = p_project and h.agent_id = t.agent_id) is not true)
               then 'unknown_call'
               -- external programs report only these kinds, not delegated turns, timers or inline calls
               when w.kind not in ('tool', 'human')
                    or (w.token_hash is not null
                        and w.token_hash is distinct from sha256(convert_to(p_token[i.n], 'UTF8')))
               then 'bad_token'
               when w.kind is null then 'early'
               when w.state = 'open' then 'applied'
               when w.status = 'timeout' then 'late'
               else 'duplicate' end
      from generate_series(1, cardinality(p_turn_id)) i (n)
      left join lateral (
           select x.agent_id, x.state from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = p_turn_id[i.n] offset 0) t
        on p_turn_id[i.n] = any (p_turns)
      left join lateral (
           select x.kind, x.state, x.status, x.token_hash from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = p_turn_id[i.n]
              and x.tool_call_id = p_call_id[i.n] offset 0) w on true
$$;

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
    v_is_error constant boolean := coalesce(p_status = 'failed', false);
begin
    return (select r.outcome from heliograph.report(
                p_project, array[p_turn_id], array[p_call_id], array[p_token], array[p_status],
                array[case when not v_is_error then p_result end], array[case when v_is_error then p_result end],
                array[null::text], array[null::boolean], clock_timestamp()) r);
end $$;

-- _invalid_report: null, or the answer to a report without a valid result; see report.
create function heliograph._invalid_report(
    p_call_id text, p_status text, p_result jsonb, p_error jsonb, p_actor text, p_limits heliograph.project_limits
) returns jsonb language plpgsql immutable as $$
begin
    return case
        when not coalesce(p_status = 'success' or (p_status = 'failed' and p_error <> 'null'), false)
        then '{"outcome": "invalid", "code": "invalid_result", '
             '"message": "the status of a report must be success, or failed with an error"}'
        when octet_length(p_actor) > 200
        then '{"outcome": "invalid", "code": "invalid_result", "message": "actor must have at most 200 bytes"}'
        else heliograph._reject_result(jsonb_build_object('call_id', p_call_id, 'result', p_result, 'error', p_error),
                                       p_limits) || '{"outcome": "invalid"}' end;
end $$;

-- _keep_duplicate: record a duplicate or late report. Of these, the inbox keeps a few per call, for display.
--   The caller holds the head.
create function heliograph._keep_duplicate(
    p_project text, p_turn_id text, p_call_id text, p_status text, p_actor text, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_kept constant integer := 8;  -- for each call
begin
    insert into heliograph.agent_inbox
        (project_id, agent_turn_id, message_type, status, correlation_id, report_status, actor,
         next_retry_at, created_at, consumed_at)
    select p_project, w.agent_turn_id, 'tool_result', 'duplicate', w.tool_call_id, p_status, p_actor, p_now,
           p_now, p_now
      from heliograph.turn_waiting_tools w
     where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.tool_call_id = p_call_id
       and w.duplicates < v_kept;
    update heliograph.turn_waiting_tools set duplicates = duplicates + 1
     where project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
end $$;
