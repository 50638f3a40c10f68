-- The open turns, for a check of new code before any worker has it.

-- read_open_turns: read a page of the open turns of an application: queued, dispatched, running and suspended ones,
--   with their calls. Nothing is claimed. p_run_id: only those of this run; null for all.
--   p_after_agent, p_after: the place after which the page begins, see next; '' and 0 for the first page.
--   Returns {turns: [{status, claimed, requests}], next}. claimed: what claim returns. requests: the arguments of each
--   call by its id, as far as the ledger has them: {task, context} of a delegation; {input_hash} of a step with a
--   result; {agent, task, context} or {tool, arguments} of a call through a gateway. next: {agent_id, queue_seq}, where
--   the next page begins, or null. A page may have fewer turns than p_limit, because it counts those of other
--   applications, too.
--   A page of one turn that does not fit into 256 MB names it: {problem, claimed: {run_id, turn_id, agent}}.
--   raises: see _enter; 22023 for a limit out of range; 54000 for several turns that do not fit into 256 MB
create function heliograph.read_open_turns(
    p_project text, p_target text, p_run_id text, p_after_agent text, p_after bigint, p_limit integer,
    p_now timestamptz
) returns json language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_page jsonb;
    v_turns json;
begin
    if not coalesce(p_limit between 1 and 1000 and p_after >= 0, false) then
        raise exception using errcode = '22023', message = 'p_limit must be from 1 to 1000, and p_after 0 or more';
    end if;
    if p_run_id is null then  -- two indexes that contain open turns alone
        select jsonb_agg(p order by p.agent_id, p.queue_seq) into v_page from (
            select * from (
                (select a.agent_turn_id, a.agent_id, a.queue_seq from heliograph.agent_turns a
                  where a.project_id = p_project and a.state = 'active' and a.agent_id >= p_after_agent
                    and (a.agent_id > p_after_agent or a.queue_seq > p_after)
                  order by a.agent_id limit p_limit)
                union all
                (select q.agent_turn_id, q.agent_id, q.queue_seq from heliograph.agent_turns q
                  where q.project_id = p_project and q.state = 'queued'
                    and (q.agent_id, q.queue_seq) > (p_after_agent, p_after)
                  order by q.agent_id, q.queue_seq limit p_limit)) found
             order by found.agent_id, found.queue_seq limit p_limit) p;
    else
        select jsonb_agg(p order by p.queue_seq) into v_page from (
            select o.agent_turn_id, o.agent_id, o.queue_seq from heliograph.agent_turns o
             where o.project_id = p_project and o.run_id = p_run_id and o.state <> 'done' and o.queue_seq > p_after
             order by o.queue_seq limit p_limit) p;
    end if;
    begin  -- a savepoint: the results of one turn may be too large to be read
        select json_agg(json_build_object('status', c.status, 'claimed', c.claimed, 'requests', c.requests)
                        order by c.n)
          into v_turns
          from (select e.n, case t.state when 'queued' then t.state else h.status end as status,
                       heliograph._turn_view(
                           t, h, heliograph._run_view(r), cause.signal, w.waits,
                           case when t.budgets is not null then heliograph._remaining(p_project, t.budgets) end, p_now)
                           as claimed,
                       coalesce(q.requests, '{}') as requests
                  from jsonb_array_elements(coalesce(v_page, '[]')) with ordinality e (item, n)
                 cross join lateral (select * from heliograph.agent_turns x
                                      where x.project_id = p_project and x.agent_turn_id = e.item ->> 'agent_turn_id'
                                     offset 0) t
                 cross join lateral (select * from heliograph.agent_state_head x
                                      where x.project_id = p_project and x.agent_id = t.agent_id offset 0) h
                 cross join lateral (select * from heliograph.runs x
                                      where x.project_id = p_project and x.run_id = t.run_id offset 0) r
                 cross join lateral heliograph._waits(p_project, t.agent_turn_id) w
                 cross join lateral heliograph._requests(p_project, t.agent_turn_id, t.run_id, r.forked_seq) q
                  left join lateral heliograph._signal_of_run(
                       p_project, t.run_id, r.forked_seq, t.cause_seq) cause on true
                 where h.target = p_target) c;
        if octet_length(v_turns::text) > 268435455 then
            raise exception using errcode = '54000', message = 'the open turns have over 256 MB of JSON';
        end if;
    exception when program_limit_exceeded then
        if p_limit > 1 then
            raise;
        end if;
        v_turns := heliograph._unreadable_turn(
            p_project, 'it has over 256 MB of JSON, and no worker can claim it', v_page #>> '{0,agent_turn_id}');
    end;
    return json_build_object('turns', coalesce(v_turns, '[]'), 'next', case
        when jsonb_array_length(v_page) = p_limit then (v_page -> -1) - 'agent_turn_id' end);
end $$;

-- _unreadable_turn: a page with the name of one turn that cannot be read, and why.
create function heliograph._unreadable_turn(p_project text, p_problem text, p_turn_id text) returns json
    language sql stable as $$
    select json_build_array(json_build_object('problem', p_problem, 'claimed', json_build_object(
               'run_id', t.run_id, 'turn_id', t.agent_turn_id, 'agent', h.agent_name)))
      from heliograph.agent_turns t
      join heliograph.agent_state_head h on h.project_id = t.project_id and h.agent_id = t.agent_id
     where t.project_id = p_project and t.agent_turn_id = p_turn_id
$$;

-- _turn_view: a turn as claim returns it, without its owner.
create function heliograph._turn_view(
    p_turn heliograph.agent_turns, p_head heliograph.agent_state_head, p_run json, p_cause jsonb, p_waits json,
    p_budget jsonb, p_now timestamptz
) returns json language sql stable as $$
    select json_build_object(
        'agent_id', p_turn.agent_id, 'agent', p_head.agent_name, 'run_id', p_turn.run_id, 'target', p_head.target,
        'turn_id', p_turn.agent_turn_id, 'epoch', p_head.turn_epoch, 'priority', p_turn.priority,
        'attempts', p_turn.attempts, 'max_attempts', p_turn.max_attempts, 'defer_count', p_turn.defer_count,
        'ttl_seconds', extract(epoch from p_turn.expires_at - p_now)::float8,
        'context_box_id', p_turn.context_box_id, 'output_box_id', p_turn.output_box_id,
        'activation_id', heliograph._signal_id(p_turn.run_id, p_turn.activation_seq), 'cause', p_cause,
        'inbox', json_build_array(json_build_object('message_type', p_turn.message_type, 'correlation_id', '')),
        'run', p_run, 'waits', coalesce(p_waits, '[]'),
        'result_fields', p_turn.result_fields, 'parent_turn_id', p_turn.parent_turn_id, 'depth', p_turn.depth,
        'message_type', p_turn.message_type,
        'stop', case when p_turn.state = 'active' and p_head.stop_requested_at is not null
                     then json_build_object('reason', p_head.stop_reason) end,
        'budget', p_budget)
$$;

-- _signal_of_run: one signal of a run, which may stand in the log of the run from which it was forked; see _signal_at.
create function heliograph._signal_of_run(p_project text, p_run_id text, p_forked_seq bigint, p_seq bigint)
    returns table (signal jsonb) language sql stable as $$
    select s.signal
      from heliograph._signal_at(p_project, case when p_seq <= p_forked_seq
               then heliograph._owner_at(p_project, p_run_id, p_seq) else p_run_id end, p_seq) s
$$;

-- _logged_call: the payload of the signal with which a turn made a call, among those from p_from to p_upto. p_from
--   null: none. p_upto null: it is in the log, as that of a call for which the turn waits.
create function heliograph._logged_call(
    p_project text, p_run_id text, p_turn_id text, p_call_id text, p_from bigint, p_upto bigint
) returns table (payload jsonb) language sql stable as $$
    select e.entry -> 'payload'
      from heliograph.signals s
     cross join lateral jsonb_array_elements(s.entries) with ordinality e (entry, n)
     where s.project_id = p_project and s.run_id = p_run_id and s.seq >= p_from
       and s.seq <= coalesce(p_upto, 9223372036854775807) and s.agent_turn_id = p_turn_id
       and e.entry ->> 'name' in ('tool:call', 'delegation') and e.entry #>> '{payload,id}' = p_call_id
     order by s.seq, e.n limit 1
$$;

-- _requests: the arguments of a turn's calls by their ids, see read_open_turns; null for none.
create function heliograph._requests(p_project text, p_turn_id text, p_run_id text, p_forked_seq bigint)
    returns table (requests json) language sql stable as $$
    select json_object_agg(w.tool_call_id, q.request) filter (where q.request is not null)
      from heliograph.turn_waiting_tools w
      left join lateral (
           select x.content from heliograph.cards x
            where w.kind in ('tool', 'human') and x.project_id = p_project
              and x.card_id = 'card_' || p_turn_id || '_' || w.epoch || '_' || w.tool_call_id offset 0) c on true
      left join lateral (
           select x.content from heliograph.blobs x
            where x.project_id = p_project and x.blob_id = c.content ->> '$blob' offset 0) b on true
      left join lateral (
           select x.cause_seq from heliograph.agent_turns x
            where w.kind = 'child' and x.project_id = p_project and x.agent_turn_id = w.child_turn_id offset 0) t
           on true
      left join lateral heliograph._signal_of_run(p_project, p_run_id, p_forked_seq, t.cause_seq) sent on true
      left join lateral heliograph._logged_call(
           p_project, p_run_id, p_turn_id, w.tool_call_id, case when w.kind = 'inline' and w.state = 'resolved'
               or w.tool = 'runtime:gateway' then w.opened_seq end, w.resolved_seq) logged on true
     cross join lateral (
           select case when w.kind = 'inline'
                       then case when logged.payload ? 'input_hash'
                                 then jsonb_build_object('input_hash', logged.payload -> 'input_hash') end
                       when w.kind = 'child' and sent.signal is not null
                       then jsonb_build_object('task', sent.signal #> '{payload,task}',
                                               'context', sent.signal #> '{payload,context}')
                       when w.tool = 'runtime:gateway' and c.content is not null
                       then jsonb_build_object('tool', coalesce(b.content, c.content) -> 'tool_name',
                                               'arguments', coalesce(b.content, c.content) -> 'arguments')
                       when w.tool = 'runtime:gateway' and logged.payload is not null
                       then jsonb_build_object('agent', logged.payload -> 'target_agent',
                                               'task', logged.payload -> 'task',
                                               'context', logged.payload -> 'context')
                       else coalesce(b.content, c.content) -> 'arguments' end as request) q
     where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.kind <> 'timer'
$$;
