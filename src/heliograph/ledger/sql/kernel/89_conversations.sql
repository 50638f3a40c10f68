-- Conversations: the earlier turns of an agent, from which the next one reads what was said (decision 0133).

-- read_conversation: read ended turns of an agent that were activated before a position of a run's log, the newest
--   first. In a fork, also those of the part that it shares, if they had ended there. A page costs the same, however
--   many turns there are.
--   Returns [{turn_id, seq, cause, outcome, content, waits, streamed}]. seq: the position of the activation. cause: the
--   signal that activated it. content: of the deliverable. waits: its calls with their results. streamed: of a turn
--   without an output, [{name, payload}], the signals harness:start and text:delta; else null.
--   raises: see _enter; 22023 for a limit or a position out of range
create function heliograph.read_conversation(
    p_project text, p_run_id text, p_agent text, p_before_seq bigint, p_limit integer
) returns json language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    if not coalesce(p_limit between 1 and 1000 and p_before_seq >= 0, false) then
        raise exception using errcode = '22023', message = 'p_limit must be from 1 to 1000, and p_before_seq 0 or more';
    end if;
    return (
        select coalesce(json_agg(json_build_object(
                   'turn_id', t.agent_turn_id, 'seq', t.activation_seq, 'cause', cause.signal, 'outcome', t.outcome,
                   'content', heliograph._content(p_project, c.content), 'waits', coalesce(w.waits, '[]'),
                   'streamed', case when t.outcome not in ('success', 'partial') then heliograph._streamed_by(
                               p_project, t.run_id, t.agent_turn_id, t.activation_seq, least(t.upto, next.seq)) end)
                   order by t.activation_seq desc), '[]')
          from (select x.*
                  from heliograph._log_parts(p_project, p_run_id) p
                 cross join lateral (
                       select y.agent_turn_id, y.activation_seq, y.cause_seq, y.outcome, y.run_id, y.agent_id, p.upto
                         from heliograph.agent_turns y
                        where y.project_id = p_project and y.run_id = p.run_id and y.activation_seq > p.after
                          and y.activation_seq <= least(p.upto, p_before_seq - 1)
                          and y.agent_id = p.run_id || '/' || p_agent and y.state = 'done'
                          and (p.run_id = p_run_id or heliograph._has_ended_by(p_project, p.run_id, y.agent_turn_id,
                                                                               y.activation_seq, p.upto))
                        order by y.activation_seq desc limit p_limit) x
                 order by x.activation_seq desc limit p_limit) t
         cross join lateral heliograph._waits(p_project, t.agent_turn_id) w
         cross join lateral (select x.forked_seq from heliograph.runs x
                              where x.project_id = p_project and x.run_id = t.run_id offset 0) r
          left join lateral heliograph._signal_of_run(p_project, t.run_id, r.forked_seq, t.cause_seq) cause on true
          left join lateral (
               select x.turn_epoch, x.content from heliograph.cards x
                where x.project_id = p_project and x.card_id = heliograph._deliverable_id(t.agent_turn_id)
               offset 0) c on true
          left join lateral (  -- its signals come before the next claim of its agent
               select l.started_seq as seq from heliograph.leases l
                where t.outcome not in ('success', 'partial') and l.project_id = p_project and l.agent_id = t.agent_id
                  and l.turn_epoch > c.turn_epoch order by l.turn_epoch limit 1) next on true);
end $$;

-- _has_ended_by: whether a turn ended in the log of its run after one position, up to another one.
create function heliograph._has_ended_by(
    p_project text, p_run_id text, p_turn_id text, p_after bigint, p_upto bigint
) returns boolean language sql stable as $$
    select exists (
        select from heliograph.signals s
         where s.project_id = p_project and s.run_id = p_run_id and s.seq > p_after and s.seq <= p_upto
           and s.agent_turn_id = p_turn_id
           and (s.entries @> '[{"name": "agent:completed"}]' or s.entries @> '[{"name": "agent:failed"}]'))
$$;

-- _streamed_by: the signals harness:start and text:delta of a turn, in order, after one position of the log of its run,
--   up to another one; null for none.
create function heliograph._streamed_by(
    p_project text, p_run_id text, p_turn_id text, p_after bigint, p_upto bigint
) returns json language sql stable as $$
    select json_agg(json_build_object('name', e.entry -> 'name', 'payload', e.entry -> 'payload') order by s.seq, e.n)
      from heliograph.signals s
     cross join lateral jsonb_array_elements(s.entries) with ordinality e (entry, n)
     where s.project_id = p_project and s.run_id = p_run_id and s.seq > p_after and s.seq <= p_upto
       and s.agent_turn_id = p_turn_id and e.entry ->> 'name' in ('harness:start', 'text:delta')
$$;
