-- Activations: a signal wakes agents. Each activation becomes a queued turn, dispatched at once if its agent is idle
-- (K27).

-- _enqueue: queue one turn for each activation {agent, instance, run_id, base, turn_id, cause, activation, priority,
--   pool, max_attempts, ttl_seconds, context_box_id, result_fields, message_type, parent_turn_id, parent_call_id,
--   depth, actor, budget, budgets, callback_url, starts_at, cause_run_id}. starts_at: the turn begins no earlier.
--   budget: its own, by kind; budgets: the owners of those that apply to its parent. Each has a turn row, inbox row and
--   edge (L0-30, L0-31, L0-33). cause and activation are indexes into the drafts that were logged after position base,
--   or cause is {"seq": n} for a signal that was in the log before; cause_run_id: the run that recorded it, if another.
--   The first one of an idle agent is dispatched at once (L0-34); the others are queued. The caller raises open_turns.
--   An activation with a target may name an agent without a head; the head is created.
--   Returns the agents that it woke.
--   raises: 22023 for a priority, a ttl or a limit out of range, and a context that cannot be read (_reject_context);
--           23503 for an agent that the run does not have; 23505 for a turn id that was used before
--   locks:  a turn id that another caller creates at the same moment; the contexts against prune. The caller holds the
--           heads (K9) and the runs
create function heliograph._enqueue(p_project text, p_activations jsonb, p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_woken text[];
    v_count integer;
begin
    perform heliograph._check_limits(a) from jsonb_array_elements(p_activations) a;
    if jsonb_path_exists(p_activations, '$[*].context_box_id ? (@ != null)') then
        perform heliograph._check_contexts(p_project, p_activations);
    end if;
    if jsonb_path_exists(p_activations, '$[*].budget ? (@ != null)') then
        p_activations := heliograph._open_budgets(p_project, p_activations);
    end if;
    with asked as (
        select a.*, concat_ws('/', a.run_id, a.agent, a.instance) as agent_id,
               case jsonb_typeof(a.cause) when 'object' then (a.cause ->> 'seq')::bigint
                    else a.base + 1 + a.cause::bigint end as cause_seq, a.base + 1 + a.activation as activation_seq
          from rows from (jsonb_to_recordset(p_activations) as
               (run_id text, base bigint, agent text, instance text, turn_id text, cause jsonb, activation bigint,
                priority smallint, max_attempts integer, ttl_seconds float8, context_box_id text, result_fields jsonb,
                message_type text, parent_turn_id text, parent_call_id text, depth smallint, actor text, target text,
                budgets text[], callback_url text, pool text, starts_at timestamptz, cause_run_id text))
               with ordinality a (run_id, base, agent, instance, turn_id, cause, activation, priority, max_attempts,
                ttl_seconds, context_box_id, result_fields, message_type, parent_turn_id, parent_call_id, depth, actor,
                target, budgets, callback_url, pool, starts_at, cause_run_id, n)
    ), placed as materialized (
        select a.*, h.at, coalesce(h.turn_epoch, 0) + 1 as epoch, h.at is null as is_new,
               case when a.starts_at > p_now then a.starts_at end as due_at,
               coalesce(h.status, 'idle') = 'idle' and row_number() over (partition by a.agent_id order by a.n) = 1
               and not exists (select from heliograph.agent_turns q where q.project_id = p_project
                                  and q.agent_id = a.agent_id and q.state = 'queued') as is_next
          from asked a
          left join lateral (
               select x.ctid as at, x.turn_epoch, x.status from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = a.agent_id offset 0) h on true
         where h.at is not null or a.target is not null
    ), turn as (
        insert into heliograph.agent_turns
            (project_id, agent_turn_id, agent_id, run_id, state, message_type, priority, max_attempts, depth,
             parent_turn_id, parent_call_id, cause_seq, activation_seq, context_box_id, output_box_id, result_fields,
             actor, created_at, expires_at, budgets, callback_url, pool, starts_at)
        select p_project, p.turn_id, p.agent_id, p.run_id, case when p.is_next then 'active' else 'queued' end,
               coalesce(p.message_type, 'turn'), coalesce(p.priority, 1), p.max_attempts, coalesce(p.depth, 0),
               p.parent_turn_id, p.parent_call_id, p.cause_seq, p.activation_seq, p.context_box_id,
               'box_' || p.turn_id, p.result_fields, p.actor, p_now, p_now + make_interval(secs => p.ttl_seconds),
               p.budgets, p.callback_url, coalesce(p.pool, 'default'), p.starts_at
          from placed p order by p.n
    ), message as (
        insert into heliograph.agent_inbox
            (project_id, agent_turn_id, agent_id, message_type, status, turn_epoch, correlation_id, payload_box_id,
             actor, next_retry_at, created_at)
        select p_project, p.turn_id, p.agent_id, coalesce(p.message_type, 'turn'),
               case when p.is_next then 'pending' else 'queued' end, case when p.is_next then p.epoch end,
               heliograph._signal_id(coalesce(p.cause_run_id, p.run_id), p.cause_seq), p.context_box_id, p.actor, p_now,
               p_now
          from placed p order by p.n
    ), edge as (
        insert into heliograph.execution_edges
            (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, other_turn_id, cause_id, created_at)
        select p_project, p.turn_id, 'enqueue', 'request', p.run_id, p.agent_id, p.parent_turn_id,
               heliograph._signal_id(coalesce(p.cause_run_id, p.run_id), p.cause_seq), p_now
          from placed p order by p.n
    ), created as (
        insert into heliograph.agent_state_head (project_id, agent_id, run_id, agent_name, target, status, turn_epoch,
             active_agent_turn_id, priority, pool, ready_at, due_at, trace_id, parent_step_id, moved_at)
        select p_project, p.agent_id, p.run_id, p.agent, p.target, 'dispatched', p.epoch, p.turn_id,
               coalesce(p.priority, 1), coalesce(p.pool, 'default'), p_now, p.due_at, p.run_id,
               heliograph._signal_id(p.run_id, p.activation_seq), p_now
          from placed p where p.is_new and p.is_next order by p.agent_id returning agent_id
    ), dispatched as (
        update heliograph.agent_state_head h
           set status = 'dispatched', turn_epoch = p.epoch, active_agent_turn_id = p.turn_id, ready_at = p_now,
               due_at = p.due_at,
               priority = coalesce(p.priority, 1), pool = coalesce(p.pool, 'default'), trace_id = p.run_id,
               parent_step_id = heliograph._signal_id(p.run_id, p.activation_seq),
               expecting_correlation_id = case when p.message_type = 'ui_action' then p.turn_id end,
               moved_at = greatest(p_now, h.moved_at)
          from placed p where h.ctid = p.at and p.is_next returning h.agent_id
    )
    select (select array_agg(agent_id order by agent_id)
              from (select agent_id from created union all select agent_id from dispatched) t), (select count(*)
                      from placed)
      into v_woken, v_count;
    if v_count < jsonb_array_length(p_activations) then
        perform heliograph._raise_no_agent(p_project, p_activations);
    end if;
    return coalesce(v_woken, '{}');
end $$;

-- _raise_no_agent: raise the error of the first activation that has no turn, because its run does not have its agent.
--   raises: 23503
create function heliograph._raise_no_agent(p_project text, p_activations jsonb) returns void
    language plpgsql as $$
begin
    raise exception using errcode = '23503', message = (
        select heliograph._no_agent(a.item ->> 'turn_id', a.item ->> 'agent', a.item ->> 'run_id')
          from jsonb_array_elements(p_activations) with ordinality a (item, n)
         order by exists (select from heliograph.agent_turns t
                           where t.project_id = p_project and t.agent_turn_id = a.item ->> 'turn_id'), a.n limit 1);
end $$;

-- _no_agent: the message about a turn for an agent that its run does not have.
create function heliograph._no_agent(p_turn_id text, p_agent text, p_run_id text) returns text
    language sql immutable as $$
    select format('turn %s activates the agent %s, which run %s does not have: name an agent of the run, or list this '
                  'one in agents when the run starts', left(p_turn_id, 60), left(p_agent, 60), left(p_run_id, 60))
$$;

-- _check_limits: reject invalid numbers and ids when they are written. Otherwise they would fail the turn whose end
--   dispatches this one.
--   raises: 22023 naming the turn and the field
create function heliograph._check_limits(p_item jsonb) returns void
    language plpgsql immutable as $$
declare
    v_wrong text := heliograph._wrong_id('a turn id', p_item ->> 'turn_id');
begin
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    elsif p_item @@ 'strict $.ttl_seconds >= 0.000001 && $.ttl_seconds <= 31622400 && $.max_attempts >= 1
                     && $.max_attempts <= 1000 && $.priority >= 0 && $.priority <= 3'
      and not p_item ?| '{instance,pool,result_fields,budget,callback_url,context_box_id,actor,message_type}' then
        return;  -- the usual case, in one expression: PostgreSQL sets up each expression once per transaction
    elsif not coalesce(jsonb_typeof(p_item -> 'ttl_seconds') = 'number', false)
       or not (p_item ->> 'ttl_seconds')::numeric between 1e-6 and 31622400 then
        v_wrong := format('ttl_seconds must be above 0 and at most 31622400, which is 366 days, not %s',
                          left(p_item ->> 'ttl_seconds', 60));
    elsif not coalesce((p_item ->> 'max_attempts')::integer between 1 and 1000, false) then
        v_wrong := format('max_attempts must be between 1 and 1000, not %s', p_item ->> 'max_attempts');
    elsif not coalesce((p_item ->> 'priority')::integer, 1) between 0 and 3 then
        v_wrong := format('priority must be between 0 (low) and 3 (critical), not %s', p_item ->> 'priority');
    elsif p_item ?| '{instance,pool,result_fields,budget,callback_url,context_box_id,actor,message_type}' then
        v_wrong := heliograph._wrong_options(p_item);
    end if;
    if v_wrong is not null then
        raise exception using errcode = '22023',
            message = format('turn %s: %s', left(p_item ->> 'turn_id', 60), v_wrong);
    end if;
end $$;

-- _wrong_options: null, or the problem of a key that an activation may lack.
create function heliograph._wrong_options(p_item jsonb) returns text
    language plpgsql immutable as $$
begin
    return coalesce(
        case when p_item ->> 'instance' is not null then heliograph._wrong_id('an instance', p_item ->> 'instance') end,
        case when p_item ->> 'pool' is not null then heliograph._wrong_id('a pool', p_item ->> 'pool') end,
        case when p_item -> 'result_fields' is not null then heliograph._wrong_fields(p_item -> 'result_fields') end,
        case when p_item -> 'budget' is not null then heliograph._wrong_amounts('a budget', p_item -> 'budget') end,
        case when p_item -> 'callback_url' is not null then heliograph._wrong_url(p_item -> 'callback_url') end,
        case when octet_length(p_item ->> 'context_box_id') > 200 then 'context_box_id must have at most 200 bytes'
             when octet_length(p_item ->> 'actor') > 200 then 'actor must have at most 200 bytes'
             when strpos(p_item ->> 'instance', '/') > 0 then 'instance must not contain a slash'
             when not coalesce(p_item ->> 'message_type' in ('turn', 'ui_action'), true)
                 then 'message_type must be turn or ui_action' end);
end $$;

-- _activated: the heads that the reactions of p_items wake.
create function heliograph._activated(p_items jsonb) returns text[]
    language sql immutable as $$
    -- offset 0: a sort for distinct would otherwise copy the whole item for each of its activations
    select coalesce(array_agg(distinct x.agent_id), '{}')
      from (select coalesce(i ->> 'run_id', heliograph._run_of(i ->> 'agent_id')) || '/' || (a ->> 'agent') as agent_id
              from jsonb_array_elements(p_items) i, jsonb_array_elements(i #> '{reaction,activations}') a offset 0) x
$$;
