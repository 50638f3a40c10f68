-- enqueue: send messages to agents of runs. Each message wakes its agent for one turn (L0-06, L0-30 to L0-35, L0-48).
--   p_messages: [{run_id, agent, instance, turn_id, cause, priority, pool, max_attempts, ttl_seconds, name, payload,
--   message_type, context_box_id, result_fields, parent_turn_id, actor, budget, callback_url}]. The log records the
--   message as signal `name`, and agent:activated after it. Its parent is the signal `cause`; without one, the
--   activation of the turn that sends it, which may be of another run; without both, the root. The turn then waits in
--   the agent's queue. A message_type of 'ui_action' does not wait: an idle agent receives it at once (L0-35).
--   parent_turn_id: the turn that sends the message; the new turn is one level deeper (G-74) and, in the same run,
--   shares its budgets. budget: {tokens, micros, model_calls, tool_calls}, the limits for the turn and for its
--   delegated turns.
--   Returns [{turn_id, outcome, targets}] in the order of p_messages. 'queued'. 'duplicate': a turn with this id
--   exists or existed. 'conflict': another message has this turn id; agent, name, payload, type, context,
--   result_fields, budget and callback_url are compared. 'busy': the agent of a ui_action is not idle.
--   'unknown_agent'. 'ended': the run is over. 'rejected' with code and message: queue_full, recursion_depth_exceeded,
--   payload_too_large, reserved_name, unknown_box, box_in_use, unknown_cause if the run has no such signal,
--   unknown_turn if the project has no such parent.
--   raises: see _enter; 22023 for a priority, a ttl or a limit out of range, and for an invalid id or name
--   locks:  the heads (K9), then the runs; the contexts against prune
create function heliograph.enqueue(p_project text, p_messages jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_agents text[] := array(
        select concat_ws('/', m ->> 'run_id', m ->> 'agent', m ->> 'instance') from jsonb_array_elements(p_messages) m);
    -- a head that is created while this call waits for locks is ignored: nothing is written without the lock (K9)
    v_heads text[] := array(
        select h.agent_id from heliograph.agent_state_head h
         where h.project_id = p_project and h.agent_id = any (v_agents));
    v_constraint text;
begin
    perform heliograph._check_json(p_messages);
    perform heliograph._check_keys('p_messages[]', p_messages,
        '{run_id,agent,instance,turn_id,cause,priority,pool,max_attempts,ttl_seconds,name,payload,'
        'message_type,context_box_id,result_fields,parent_turn_id,actor,budget,callback_url}');
    perform heliograph._lock_heads(p_project, v_heads);
    perform heliograph._lock_runs(p_project, (select array_agg(m ->> 'run_id')
                                              from jsonb_array_elements(p_messages) m));
    for v_tries_left in reverse coalesce(jsonb_array_length(p_messages), 0) .. 0 loop
        begin
            return heliograph._enqueue_messages(p_project, p_messages, v_heads, v_limits, p_now);
        exception when unique_violation then
            -- another caller has created a turn of another run with one of these ids: now it is visible
            get stacked diagnostics v_constraint = constraint_name;
            if v_constraint is distinct from 'agent_turns_pkey' or v_tries_left = 0 then
                raise;
            end if;
        end;
    end loop;
end $$;

-- _enqueue_messages: enqueue one message after another; see enqueue.
--   raises: see enqueue; 23505 for a turn id that another caller creates at the same moment
--   The caller holds the heads and the runs.
create function heliograph._enqueue_messages(
    p_project text, p_messages jsonb, p_heads text[], p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_message jsonb;
    v_signals jsonb;
    v_reaction jsonb;
    v_woken text[];
    v_rejection jsonb;
    v_answer jsonb := '[]';
begin
    for v_message in select item from jsonb_array_elements(p_messages) with ordinality m (item, n) order by n loop
        v_woken := '{}';
        v_message := v_message || coalesce((  -- a budget belongs to one run
            select jsonb_build_object('depth', 1 + t.depth, 'budgets', case when t.run_id = v_message ->> 'run_id'
                                      then t.budgets end,
                                      'sender', heliograph._signal_id(t.run_id, t.activation_seq))
              from heliograph.agent_turns t
             where t.project_id = p_project and t.agent_turn_id = v_message ->> 'parent_turn_id'),
             '{"depth": 0, "budgets": null, "sender": null}');
        v_rejection := heliograph._reject_message(p_project, v_message, p_heads, p_limits);
        if v_rejection is null and v_message ->> 'context_box_id' is not null then
            v_rejection := heliograph._reject_context(p_project, v_message ->> 'context_box_id');
        end if;
        if v_rejection is null then
            v_signals := jsonb_build_array(
                jsonb_build_object('name', v_message ->> 'name', 'payload', coalesce(v_message -> 'payload', '{}'),
                                   'parent', coalesce(v_message ->> 'cause', v_message ->> 'sender',
                                                      heliograph._root_id(p_project, v_message ->> 'run_id'))),
                jsonb_build_object('name', 'agent:activated', 'parent', 0, 'agent', v_message ->> 'agent',
                                   'payload', jsonb_build_object('agent', v_message ->> 'agent')));
            v_reaction := jsonb_build_object('activations',
                -- the turn belongs to its run; only a call makes another turn wait for its end
                jsonb_build_array(v_message - '{parent_turn_id,sender}'::text[] || '{"cause": 0, "activation": 1}'))
                || case when v_message ->> 'parent_turn_id' is null then '{"is_message": true}'::jsonb else '{}' end;
            v_woken := heliograph._commit_reactions(
                p_project, '{1}', array[v_message ->> 'run_id'], '{null}', array[v_signals], array[v_reaction],
                '{null}', null, 0, p_now);
        end if;
        v_answer := v_answer || (jsonb_build_object('turn_id', v_message ->> 'turn_id', 'outcome', 'queued')
                                 || heliograph._bells(p_project, v_woken) || coalesce(v_rejection, '{}'));
    end loop;
    return v_answer;
end $$;

-- _reject_message: null, or the outcome of a message that cannot be queued; see enqueue.
--   raises: 22023 for an invalid turn id or name
--   The caller holds the head and the run.
create function heliograph._reject_message(
    p_project text, p_message jsonb, p_heads text[], p_limits heliograph.project_limits
) returns jsonb language plpgsql stable as $$
declare
    v_agent_id text := concat_ws('/', p_message ->> 'run_id', p_message ->> 'agent', p_message ->> 'instance');
    v_run heliograph.runs;
    v_status text;
    v_wrong text;
begin
    if exists (select from heliograph.pruned where project_id = p_project and id = 'turn:'
               || (p_message ->> 'turn_id')) then
        return '{"outcome": "duplicate"}';
    elsif exists (select from heliograph.agent_turns
                   where project_id = p_project and agent_turn_id = p_message ->> 'turn_id') then
        return jsonb_build_object('outcome', heliograph._same_message(p_project, p_message));
    end if;
    select * into v_run from heliograph.runs where project_id = p_project and run_id = p_message ->> 'run_id';
    select status into v_status from heliograph.agent_state_head
     where project_id = p_project and agent_id = v_agent_id and agent_id = any (p_heads);
    if v_status is null or v_run.run_id is null then
        return '{"outcome": "unknown_agent"}';
    elsif v_run.status <> 'running' then
        return '{"outcome": "ended"}';
    elsif p_message ->> 'message_type' = 'ui_action' and v_status <> 'idle' then
        return '{"outcome": "busy"}';
    end if;
    v_wrong := coalesce(heliograph._wrong_id('a turn id', p_message ->> 'turn_id'),
                        heliograph._wrong_name(p_message ->> 'name'));
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    elsif heliograph._is_reserved(p_message ->> 'name') then
        return heliograph._rejection('reserved_name', format('only the runtime emits %s: choose another first segment',
                                                             p_message ->> 'name'));
    elsif p_message ->> 'parent_turn_id' is not null and not exists (
            select from heliograph.agent_turns where project_id = p_project
                and agent_turn_id = p_message ->> 'parent_turn_id') then
        return heliograph._rejection('unknown_turn', format('there is no turn %s',
                                                            left(p_message ->> 'parent_turn_id', 200)));
    elsif p_message ->> 'cause' is not null and not coalesce(
            -- the end of a signal's id is its position in the log of its run
            (p_message ->> 'cause') = heliograph._signal_id(
                heliograph._owner_at(p_project, v_run.run_id, substring(p_message ->> 'cause'
                        from '_([0-9]{1,18})$')::bigint),
                substring(p_message ->> 'cause' from '_([0-9]{1,18})$')::bigint)
            and substring(p_message ->> 'cause' from '_([0-9]{1,18})$')::bigint between 1 and v_run.signal_seq,
            false) then
        return heliograph._rejection('unknown_cause', format('run %s has no signal %s', v_run.run_id,
                                                             left(p_message ->> 'cause', 200)));
    elsif (p_message ->> 'depth')::integer > p_limits.depth_max then
        return heliograph._over_limit(
            'recursion_depth_exceeded', format('the turn would be %s delegations deep', p_message ->> 'depth'),
            p_limits.depth_max, 'do the work without a further delegation', 'depth_max');
    end if;
    return coalesce(case when octet_length((p_message -> 'payload')::text) > p_limits.payload_bytes_max
                         then heliograph._reject_signals(jsonb_build_array(p_message), p_limits) end,
                    heliograph._reject_activations(p_project, v_run.run_id, jsonb_build_array(p_message), p_limits));
end $$;

-- _same_message: 'duplicate' if the turn with this id came from the same message, else 'conflict'.
create function heliograph._same_message(p_project text, p_message jsonb) returns text
    language sql stable as $$
    select case when t.agent_id = concat_ws('/', p_message ->> 'run_id', p_message ->> 'agent',
                                            p_message ->> 'instance')
                 and s.signal ->> 'name' = p_message ->> 'name'
                 and s.signal -> 'payload' = coalesce(p_message -> 'payload', '{}')
                 and t.message_type = coalesce(p_message ->> 'message_type', 'turn')
                 and t.result_fields is not distinct from nullif(p_message -> 'result_fields', 'null')
                 and t.callback_url is not distinct from p_message ->> 'callback_url'
                 and case when t.agent_turn_id = any (t.budgets)
                          then heliograph._budget_of(p_project, t.agent_turn_id) end
                     is not distinct from nullif(p_message -> 'budget', 'null')
                 -- the first context box of the turn: it may have another by now
                 and exists (select from heliograph.agent_inbox i
                              where i.project_id = p_project and i.agent_turn_id = t.agent_turn_id
                                and i.message_type = t.message_type
                                and i.payload_box_id is not distinct from p_message ->> 'context_box_id')
                then 'duplicate' else 'conflict' end
      from heliograph.agent_turns t
     cross join lateral heliograph._signal_at(
               p_project, heliograph._owner_at(p_project, t.run_id, t.cause_seq), t.cause_seq) s (signal)
     where t.project_id = p_project and t.agent_turn_id = p_message ->> 'turn_id'
$$;
