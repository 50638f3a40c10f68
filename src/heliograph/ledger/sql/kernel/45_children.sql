-- Children: turns that a suspended turn waits for (L0-38). A child is enqueued in the commit that suspends its parent,
-- and its end comes back through the outbox (sweep_reports), so that no transaction ever holds both at once (K17).

-- _child_agents: the agent ids of the children in these items of suspend. p_runs: of the items.
create function heliograph._child_agents(p_runs text[], p_calls jsonb[]) returns text[]
    language sql immutable as $$
    select coalesce(array_agg(distinct concat_ws('/', p_runs[n], c #>> '{child,agent}', c #>> '{child,instance}')),
                    '{}')
      from generate_subscripts(p_calls, 1) n
     cross join lateral jsonb_array_elements(p_calls[n]) c
     where c ->> 'kind' = 'child'
$$;

-- _lock_new_heads: lock the heads that were created while the caller waited for the runs. Another transaction may hold
--   one by now. Waiting for it could be a deadlock, because the caller holds the runs.
--   raises: 40001: try again
--   locks:  the new heads, without waiting
create function heliograph._lock_new_heads(p_project text, p_agent_ids text[]) returns void
    language plpgsql as $$
declare
    v_held bigint;
begin
    select count(*) into v_held from (
        select from heliograph.agent_state_head
         where project_id = p_project and agent_id = any (p_agent_ids)
         order by agent_id for update skip locked) held;
    if v_held < (select count(*) from heliograph.agent_state_head
                  where project_id = p_project and agent_id = any (p_agent_ids)) then
        raise exception using errcode = '40001',
            message = 'another call has just created the head of a child''s agent: repeat the call';
    end if;
end $$;

-- _reject_children: null, or the rejection of the children of an item of suspend. Calls that the turn has already are
--   not checked, because suspend does not change them.
--   locks:  the contexts against prune; the caller holds the heads and the run
create function heliograph._reject_children(
    p_project text, p_run_id text, p_turn_id text, p_calls jsonb, p_limits heliograph.project_limits
) returns jsonb language plpgsql as $$
declare
    v_children bigint;
    v_depth integer;
    v_rejection jsonb;
begin
    select count(*) into v_children from jsonb_array_elements(p_calls) c where c ->> 'kind' = 'child';
    if v_children = 0 then
        return null;
    elsif v_children > p_limits.fan_out_max then
        return heliograph._over_limit('fan_out', format('the turn would start %s children at once', v_children),
                                      p_limits.fan_out_max, 'start them in several rounds', 'fan_out_max');
    end if;
    select depth + 1 into v_depth from heliograph.agent_turns
     where project_id = p_project and agent_turn_id = p_turn_id;
    with recursive ancestor as (
        select t.agent_id, t.parent_turn_id from heliograph.agent_turns t
         where t.project_id = p_project and t.agent_turn_id = p_turn_id
        union all
        select t.agent_id, t.parent_turn_id from ancestor a
          join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = a.parent_turn_id
    ), child as materialized (
        select c.n, c.item #>> '{child,turn_id}' as turn_id,
               c.item #>> '{child,agent}' as agent,
               concat_ws('/', p_run_id, c.item #>> '{child,agent}', c.item #>> '{child,instance}') as agent_id
          from jsonb_array_elements(p_calls) with ordinality c (item, n)
         where c.item ->> 'kind' = 'child' and not exists (
               select from heliograph.turn_waiting_tools w
                where w.project_id = p_project and w.agent_turn_id = p_turn_id
                  and w.tool_call_id = c.item ->> 'call_id' offset 0)
    ), queue as materialized (
        select c.agent_id, min(c.agent) as agent, count(*) as more, min(c.n) as n,
               (select count(*) from heliograph.agent_turns t
                 where t.project_id = p_project and t.agent_id = c.agent_id and t.state = 'queued') as queued,
               -- an instance has no head before its first turn, but the run has a head of its agent
               exists (select from heliograph.agent_state_head h
                        where h.project_id = p_project and h.agent_id = p_run_id || '/' || min(c.agent)) as has_head
          from child c group by c.agent_id
    )
    select r.rejection into v_rejection
      from (select 1 as rank, c.n,
                   heliograph._rejection('id_conflict', format('turn %s exists', c.turn_id)) as rejection
              from child c where exists (select from heliograph.agent_turns t
                                          where t.project_id = p_project and t.agent_turn_id = c.turn_id)
            union all
            select 1, c.n, heliograph._rejection('id_conflict', format('two children have the turn id %s', c.turn_id))
              from child c where exists (select from child o where o.turn_id = c.turn_id and o.n < c.n)
            union all
            select 2, q.n, heliograph._rejection('unknown_agent', format('the run has no agent %s/%s', p_run_id,
                                                                         q.agent))
              from queue q where not q.has_head
            union all
            select 3, q.n, heliograph._rejection('delegation_cycle',
                                                 format('agent %s waits for this turn itself; a turn that '
                               'it would have to do first could never begin: give the child an instance of its own',
                               q.agent_id))
              from queue q where q.agent_id in (select a.agent_id from ancestor a)
            union all
            select 4, q.n, heliograph._over_limit(
                   'queue_full', format('agent %s has %s turns waiting', q.agent_id, q.queued), p_limits.queue_max,
                   'delegate less to it at once', 'queue_max')
              from queue q where q.queued + q.more > p_limits.queue_max
            union all
            select 5, q.n, heliograph._over_limit(
                   'recursion_depth_exceeded', format('the turn would be %s delegations deep', v_depth),
                   p_limits.depth_max, 'do the work without a further delegation', 'depth_max')
              from queue q where v_depth > p_limits.depth_max
            union all
            select 6, q.n, heliograph._rejection('run_stopping', format(
                   'run %s is being stopped: it wakes no more agents', p_run_id))
              from queue q join heliograph.runs x on x.project_id = p_project and x.run_id = p_run_id
             where x.status <> 'running'  -- a session that is closed still answers: a stop has its reason in the memory
               and (not x.memory ? 'session' or x.memory ? 'stopped_by')) r
     order by r.rank, r.n limit 1;
    if v_rejection is null and jsonb_path_exists(p_calls, '$[*].child.context_box_id ? (@ != null)') then
        select r.rejection into v_rejection
          from (select heliograph._reject_context(p_project, c.box_id) as rejection, c.n from (
                       select i.item #>> '{child,context_box_id}' as box_id, i.n
                         from jsonb_array_elements(p_calls) with ordinality i (item, n)
                        where i.item ->> 'kind' = 'child' and i.item #>> '{child,context_box_id}' is not null
                          and not exists (
                              select from heliograph.turn_waiting_tools w
                               where w.project_id = p_project and w.agent_turn_id = p_turn_id
                                 and w.tool_call_id = i.item ->> 'call_id' offset 0)) c) r
         where r.rejection is not null order by r.n limit 1;
    end if;
    return v_rejection;
end $$;

-- _reject_duplicates: null, or the rejection of item p_place for a child with the turn id of an earlier item's child.
create function heliograph._reject_duplicates(
    p_project text, p_turn_id text[], p_calls jsonb[], p_place integer
) returns jsonb language plpgsql stable as $$
begin
    return (
        select heliograph._rejection('id_conflict', format('two children have the turn id %s',
                                                           c.item #>> '{child,turn_id}'))
          from jsonb_array_elements(p_calls[p_place]) with ordinality c (item, n)
         where c.item ->> 'kind' = 'child'
           and exists (select from generate_series(1, p_place - 1) i
                        cross join lateral jsonb_array_elements(p_calls[i]) o
                        where o #> '{child,turn_id}' = c.item #> '{child,turn_id}')
           and not exists (select from heliograph.turn_waiting_tools w  -- others do not change
                            where w.project_id = p_project and w.agent_turn_id = p_turn_id[p_place]
                              and w.tool_call_id = c.item ->> 'call_id' offset 0)
         order by c.n limit 1);
end $$;

-- _enqueue_children: enqueue the child turns of the waits that were just opened, one level deeper than their parents.
--   Returns the agents that it woke.
--   raises: see _enqueue
--   locks:  see _enqueue; the caller holds the heads and the runs
create function heliograph._enqueue_children(
    p_project text, p_items heliograph.suspension[], p_now timestamptz
) returns text[]
    language plpgsql as $$
declare
    v_activations jsonb;
begin
    select jsonb_agg((c.item -> 'child') || jsonb_build_object(
                      'cause', coalesce(nullif(c.item #> '{child,cause}', 'null'), jsonb_build_object('seq',
                              t.activation_seq)),
                      'run_id', t.run_id, 'base', i.first_seq - 1,
                      'parent_turn_id', t.agent_turn_id, 'parent_call_id', c.item -> 'call_id', 'depth', t.depth + 1,
                      'budgets', t.budgets, 'starts_at', c.item #> '{rate,starts_at}')
               -- only the head of an instance is created with its first turn
               || case when c.item #>> '{child,instance}' is null then '{}' else jsonb_build_object('target',
                       h.target) end
               order by i.place, c.n)
      into v_activations
      from unnest(p_items) i
     cross join lateral jsonb_array_elements(i.calls) with ordinality c (item, n)
     cross join lateral (
           select x.* from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = i.turn_id offset 0) t
     cross join lateral (
           select x.target from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = t.agent_id offset 0) h
     where c.item ->> 'kind' = 'child'
       and exists (select from heliograph.turn_waiting_tools w
                    where w.project_id = p_project and w.agent_turn_id = t.agent_turn_id
                      and w.tool_call_id = c.item ->> 'call_id'
                      and w.child_turn_id = c.item #>> '{child,turn_id}' offset 0)
       and not exists (select from heliograph.agent_turns x
                        where x.project_id = p_project and x.agent_turn_id = c.item #>> '{child,turn_id}' offset 0);
    if v_activations is null then
        return '{}';
    end if;
    -- a reaction that was computed without these turns may not end the run (K24, K27)
    update heliograph.runs r
       set open_turns = r.open_turns + a.more, activations = r.activations + a.more, version = r.version + 1,
           updated_at = p_now
      from (select x.at, m.more from (
                   select a ->> 'run_id' as run_id, count(*)::integer as more from jsonb_array_elements(v_activations) a
                       group by 1) m
             cross join lateral (
                   select y.ctid as at from heliograph.runs y
                    where y.project_id = p_project and y.run_id = m.run_id offset 0) x) a
     where r.ctid = a.at;
    return heliograph._enqueue(p_project, v_activations, p_now);
end $$;
