-- Early reports: the report of a call that its turn has not opened yet is kept until suspend opens the call (K28).

-- _keep_early: keep the report of a call that is not open yet. It is kept under the hash of its token, so that a forged
--   report neither replaces it nor is applied instead of it. Returns {outcome}.
--   The caller holds the head.
create function heliograph._keep_early(
    p_project text, p_turn_id text, p_call_id text, p_token text, p_status text, p_result jsonb, p_error jsonb,
    p_actor text, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_payload jsonb := jsonb_build_object(
        'status', p_status, 'result', p_result, 'error', p_error, 'session', session_user,
        'token_hash', encode(sha256(convert_to(p_token, 'UTF8')), 'hex'));
    v_kept integer;
    v_is_known boolean;
begin
    select count(*), bool_or(i.correlation_id = p_call_id and i.payload -> 'token_hash' = v_payload -> 'token_hash')
      into v_kept, v_is_known
      from heliograph.agent_inbox i
     where i.project_id = p_project and i.agent_turn_id = p_turn_id and i.payload is not null;
    if v_is_known then
        return '{"outcome": "duplicate"}';
    elsif v_kept >= p_limits.waits_max then
        return heliograph._rejection('too_many_early',
                                     format('%s reports of calls that the turn has not opened are kept for it; '
                                   'report again once call %s is open', v_kept, p_call_id));
    end if;
    insert into heliograph.agent_inbox
        (project_id, agent_turn_id, message_type, status, correlation_id, payload, actor, next_retry_at, created_at)
    select p_project, t.agent_turn_id, 'tool_result', 'pending', p_call_id, v_payload, p_actor, p_now, p_now
      from heliograph.agent_turns t
     where t.project_id = p_project and t.agent_turn_id = p_turn_id;
    return '{"outcome": "early"}';
end $$;

-- _apply_early: resolve the calls of these turns whose reports came before them: each by the first report with the
--   right token. The other reports of such a call are discarded.
--   locks:  see _resolve; the caller holds the heads and the runs
create function heliograph._apply_early(
    p_project text, p_turns text[], p_limits heliograph.project_limits, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_results jsonb;
begin
    select jsonb_agg(jsonb_build_object('turn_id', e.turn_id, 'call_id', e.call_id, 'inbox_id', e.inbox_id,
                                        'message_type', 'tool_result',
               'status', e.payload -> 'status', 'output', e.payload -> 'result', 'error', e.payload -> 'error',
               'session', e.payload -> 'session') order by e.inbox_id)
      into v_results
      from (select distinct on (i.turn_id, w.tool_call_id)
                   i.turn_id, w.tool_call_id as call_id, m.inbox_id, m.payload
              from unnest(p_turns) i (turn_id)
             cross join lateral (
                   select x.inbox_id, x.correlation_id, x.payload from heliograph.agent_inbox x
                    where x.project_id = p_project and x.agent_turn_id = i.turn_id
                      and x.payload is not null offset 0) m
             cross join lateral (
                   select x.tool_call_id from heliograph.turn_waiting_tools x
                    where x.project_id = p_project and x.agent_turn_id = i.turn_id
                      and x.tool_call_id = m.correlation_id
                      and x.state = 'open' and x.kind in ('tool', 'human')
                      and (x.token_hash is null or x.token_hash = decode(m.payload ->> 'token_hash', 'hex')) offset 0) w
             order by i.turn_id, w.tool_call_id, m.inbox_id) e;
    if v_results is not null then
        perform heliograph._resolve(p_project, heliograph._call_results(v_results), octet_length(v_results::text),
                                    p_limits, p_now);
    end if;
    update heliograph.agent_inbox m set status = 'dead', payload = null, consumed_at = p_now
      from (select x.at from unnest(p_turns) i (turn_id) cross join lateral (
                   select y.ctid as at from heliograph.agent_inbox y
                    where y.project_id = p_project and y.agent_turn_id = i.turn_id and y.payload is not null
                      and exists (select from heliograph.turn_waiting_tools w
                                   where w.project_id = p_project and w.agent_turn_id = i.turn_id
                                     and w.tool_call_id = y.correlation_id) offset 0) x) e
     where m.ctid = e.at;
end $$;
