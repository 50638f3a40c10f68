-- Calls of turns that a fork starts again: what the shared part of the log has recorded is not done a second time
-- (decision 0072).

-- _calls_before: the calls of a turn that its successor in a fork takes over, with their results up to p_seq,
--   the position of the fork's signal. A call without a result by then is unknown: its effect may have happened. Left
--   out are calls without a result that had no effect: pure ones, model calls, timers and questions to people.
--   p_repeats_failed: for a retry. Failed calls after which the turn made no other call are left out, too; and calls
--   between that signal and the next one, which ended a turn, are not, because no attempt is to repeat their effects.
--   p_at: the time of the signal, which decides about calls from before migration 0033.
create function heliograph._calls_before(
    p_project text, p_turn_id text, p_seq bigint, p_at timestamptz, p_repeats_failed boolean
) returns table (wait heliograph.turn_waiting_tools, place bigint, status text, is_known boolean)
    language sql stable as $$
    select w.w, row_number() over (order by w.is_known desc, (w.w).resolved_position, (w.w).position),
           case when w.is_known then (w.w).status else 'unknown' end, w.is_known
      from (select x as w, x.state = 'resolved'
                   and coalesce(x.resolved_seq <= u.upto, x.resolved_at <= p_at) as is_known
              from heliograph.turn_waiting_tools x
             cross join (select p_seq + p_repeats_failed::integer as upto) u
             where x.project_id = p_project and x.agent_turn_id = p_turn_id
               and coalesce(x.opened_seq <= u.upto, x.opened_at <= p_at)) w
     where (w.is_known
            or (w.w).effect <> 'pure' and (w.w).tool <> 'model' and (w.w).kind in ('inline', 'tool', 'child'))
       and not (p_repeats_failed and w.is_known and (w.w).status = 'failed' and not exists (
                select from heliograph.turn_waiting_tools l
                 where l.project_id = p_project and l.agent_turn_id = p_turn_id and l.position > (w.w).position
                   and coalesce(l.opened_seq <= p_seq + 1, l.opened_at <= p_at)
                   and l.status is distinct from 'failed'))
$$;

-- _copy_calls: give the turns of a new fork the calls that their origins made before the fork, see _calls_before.
--   A fork's turns: [{turn_id, origin}]; its turn turn_id starts the turn origin again.
--   The caller has created the turns.
create function heliograph._copy_calls(p_project text, p_run heliograph.new_run, p_now timestamptz) returns void
    language plpgsql as $$
begin
    if not exists (
        select from jsonb_path_query(p_run.fork, '$.turns[*].origin') o
         cross join lateral (
               select from heliograph.turn_waiting_tools w
                where w.project_id = p_project and w.agent_turn_id = o #>> '{}' offset 0) w) then
        return;  -- the usual case, without a statement that writes to three tables
    end if;
    with fork as materialized (
        select p_run.run_id, (p_run.fork ->> 'seq')::bigint as seq, p_run.fork ->> 'owner' as owner,
               p_run.fork -> 'turns' as turns, coalesce((p_run.fork ->> 'repeats_failed')::boolean, false)
                   as repeats_failed
    ), pair as materialized (
        select f.run_id, f.seq, t.turn_id, t.origin, s.at, f.repeats_failed
          from fork f
         cross join lateral jsonb_to_recordset(f.turns) t (turn_id text, origin text)
         cross join lateral (
               select g.at from heliograph.signals g
                where g.project_id = p_project and g.run_id = f.owner and g.seq <= f.seq
                order by g.seq desc limit 1) s
    ), call as materialized (
        select p.seq, p.turn_id, h.turn_epoch, c.place, c.status, c.wait as w, (c.wait).kind,
               (c.wait).tool_call_id as call_id, (c.wait).child_turn_id,
               heliograph._result_id(p.turn_id, (c.wait).tool_call_id) as card_id,
               heliograph._result_id(p.origin, (c.wait).tool_call_id) as origin_card_id, c.is_known
          from pair p
         cross join lateral heliograph._calls_before(p_project, p.origin, p.seq, p.at, p.repeats_failed) c
          join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = p.turn_id
                                       and t.run_id = p.run_id
          join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = t.agent_id
    ), card as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, c.card_id, 'box_' || c.turn_id, c.turn_id, c.turn_epoch, 'tool.result',
               case when c.is_known then k.content else heliograph._unknown_content(c.call_id, (c.w).tool) end, p_now
          from call c
          left join heliograph.cards k on k.project_id = p_project and k.card_id = c.origin_card_id
         order by c.turn_id, c.place
    ), message as (
        insert into heliograph.agent_inbox (project_id, agent_turn_id, message_type, status, turn_epoch,
            correlation_id, applied, report_status, next_retry_at, created_at, consumed_at)
        select p_project, c.turn_id, 'tool_result', 'consumed', c.turn_epoch, c.call_id, true, c.status, p_now, p_now,
               p_now
          from call c where c.kind <> 'inline' order by c.turn_id, c.place
    )
    insert into heliograph.turn_waiting_tools (project_id, agent_turn_id, tool_call_id, step_id, tool, kind, effect,
        state, epoch, after_execution, may_override, child_turn_id, status, resolved_position, opened_at, resolved_at,
        opened_seq, resolved_seq, taint, is_trusted)
    select p_project, c.turn_id, c.call_id, (c.w).step_id, (c.w).tool, c.kind, (c.w).effect, 'resolved', c.turn_epoch,
           (c.w).after_execution, (c.w).may_override, c.child_turn_id, c.status, c.place, p_now, p_now, c.seq + 1,
           c.seq + 1, (c.w).taint, (c.w).is_trusted
      from call c order by c.turn_id, (c.w).position;
end $$;

-- _unknown_content: the result of a call that had begun before the fork and had no result by then.
create function heliograph._unknown_content(p_call_id text, p_tool text) returns jsonb
    language sql immutable as $$
    select jsonb_build_object('call_id', p_call_id, 'tool', p_tool, 'status', 'unknown', 'trust', 'trusted', 'error',
        jsonb_build_object('code', 'IN_DOUBT', 'recoverable', false, 'message',
            'the call had begun before the signal at which its run was forked, and had no result by then'))
$$;
