-- Activations: a signal wakes agents. Each activation becomes a queued turn, dispatched at once if its agent is idle
-- (K27).

-- _new_turns: activations as turns of a run. Inlined. p_base: the position of the run's log after which the drafts were
--   logged that cause and activation are indexes of, unless cause is {"seq": n}. See _enqueue.
create function heliograph._new_turns(p_run_id text, p_target text, p_base bigint, p_activations jsonb)
    returns setof heliograph.new_turn language sql stable as $$
    select coalesce(a.run_id, p_run_id), a.agent,
           coalesce(a.run_id, p_run_id) || '/' || a.agent || coalesce('/' || a.instance, ''),
           coalesce(a.target, p_target), a.turn_id, coalesce(a.message_type, 'turn'), coalesce(a.priority, 1::smallint),
           coalesce(a.pool, 'default'), a.max_attempts, a.ttl_seconds, a.starts_at, coalesce(a.depth, 0::smallint),
           a.parent_turn_id, a.parent_call_id,
           heliograph._signal_id(coalesce(a.cause_run_id, a.run_id, p_run_id), c.seq), c.seq,
           coalesce(a.base, p_base) + 1 + a.activation, a.context_box_id, a.result_fields, a.actor,
           case when coalesce(a.budget, 'null') = 'null' then a.budgets else coalesce(a.budgets, '{}') || a.turn_id end,
           a.callback_url
      from jsonb_to_recordset(p_activations) a
               (run_id text, base bigint, agent text, instance text, target text, turn_id text, cause jsonb,
                cause_run_id text, activation bigint, message_type text, priority smallint, pool text,
                max_attempts integer, ttl_seconds float8, starts_at timestamptz, depth smallint, parent_turn_id text,
                parent_call_id text, context_box_id text, result_fields jsonb, actor text, budget jsonb, budgets text[],
                callback_url text)
     cross join lateral (select case jsonb_typeof(a.cause) when 'object' then (a.cause ->> 'seq')::bigint
                                else coalesce(a.base, p_base) + 1 + a.cause::bigint end as seq) c
$$;

-- _insert_turns: write the rows of new turns: turn and inbox row, which edge_overview also reads as the edge
--   enqueue/request (L0-30, L0-31, L0-33). p_epochs: per turn, the epoch of its head that it is dispatched with; null
--   if it is queued.
--   raises: 23505 for a turn id that was used before
--   locks:  a turn id that another caller creates at the same moment
create function heliograph._insert_turns(
    p_project text, p_turns heliograph.new_turn[], p_epochs bigint[], p_now timestamptz
) returns void language plpgsql as $$
begin
    insert into heliograph.agent_turns
        (project_id, agent_turn_id, agent_id, run_id, state, message_type, priority, pool, max_attempts, depth,
         parent_turn_id, parent_call_id, cause_seq, activation_seq, context_box_id, output_box_id, result_fields, actor,
         created_at, expires_at, starts_at, budgets, callback_url)
    select p_project, t.turn_id, t.agent_id, t.run_id, case when t.epoch is null then 'queued' else 'active' end,
           t.message_type, t.priority, t.pool, t.max_attempts, t.depth, t.parent_turn_id, t.parent_call_id, t.cause_seq,
           t.activation_seq, t.context_box_id, 'box_' || t.turn_id, t.result_fields, t.actor, p_now,
           p_now + make_interval(secs => t.ttl_seconds), t.starts_at, t.budgets, t.callback_url
      from rows from (unnest(p_epochs), unnest(p_turns)) t (epoch);
    insert into heliograph.agent_inbox
        (project_id, agent_turn_id, message_type, status, turn_epoch, correlation_id, payload_box_id, actor,
         next_retry_at, created_at)
    select p_project, t.turn_id, t.message_type, case when t.epoch is null then 'queued' else 'pending' end, t.epoch,
           nullif(t.cause_id, heliograph._signal_id(t.run_id, t.cause_seq)), t.context_box_id, t.actor, p_now, p_now
      from rows from (unnest(p_epochs), unnest(p_turns)) t (epoch);
end $$;

-- _insert_heads: write the heads of agents that have none: of those that begin a turn, and of the other agents of
--   p_runs. p_epochs: see _insert_turns. Returns the agents that it woke.
create function heliograph._insert_heads(
    p_project text, p_turns heliograph.new_turn[], p_epochs bigint[], p_runs heliograph.new_run[], p_now timestamptz
) returns text[] language plpgsql as $$
declare
    v_woken text[];
begin
    with created as (
        insert into heliograph.agent_state_head
            (project_id, agent_id, run_id, agent_name, target, status, turn_epoch, active_agent_turn_id, priority, pool,
             ready_at, due_at, activation_seq, moved_at)
        select p_project, t.agent_id, t.run_id, t.agent, t.target, 'dispatched', t.epoch, t.turn_id, t.priority, t.pool,
               p_now, case when t.starts_at > p_now then t.starts_at end, t.activation_seq, p_now
          from rows from (unnest(p_epochs), unnest(p_turns)) t (epoch)
         where t.epoch is not null
        union all
        select p_project, r.run_id || '/' || a.name, r.run_id, a.name, r.target, 'idle', 0, null, 1, 'default', null,
               null, null, p_now
          from unnest(p_runs) r
         cross join lateral (
               select distinct e.name from jsonb_array_elements_text(r.agents - array(
                      select w ->> 'agent' from jsonb_array_elements(r.reaction -> 'activations') w)) e (name)) a
        returning agent_id, active_agent_turn_id
    )
    select array_agg(c.agent_id order by c.agent_id) into v_woken from created c
     where c.active_agent_turn_id is not null;
    return coalesce(v_woken, '{}');
end $$;

-- _check_options: check what activations may name besides an agent, and create their budgets.
--   raises: 22023 for a context that cannot be read (_reject_context); 23505 for a turn id that was used before
--   locks:  the contexts against prune
create function heliograph._check_options(p_project text, p_activations jsonb) returns void
    language plpgsql as $$
begin
    if jsonb_path_exists(p_activations, '$[*].context_box_id ? (@ != null)') then
        perform heliograph._check_contexts(p_project, p_activations);
    end if;
    if jsonb_path_exists(p_activations, '$[*].budget ? (@ != null)') then
        perform heliograph._open_budgets(p_project, p_activations);
    end if;
end $$;

-- _enqueue: queue one turn for each activation {agent, instance, run_id, base, turn_id, cause, activation, priority,
--   pool, max_attempts, ttl_seconds, context_box_id, result_fields, message_type, parent_turn_id, parent_call_id,
--   depth, actor, budget, budgets, callback_url, starts_at, cause_run_id}. starts_at: the turn begins no earlier.
--   budget: its own, by kind; budgets: the owners of those that apply to its parent. Each has a turn row and an inbox
--   row. cause and activation are indexes into the drafts that were logged after position base, or cause is {"seq": n}
--   for a signal that was in the log before; cause_run_id: the run that recorded it, if another.
--   The first one of an idle agent is dispatched at once (L0-34); the others are queued. The caller raises open_turns.
--   An activation with a target may name an agent without a head; the head is created.
--   Returns the agents that it woke.
--   raises: 22023 for a priority, a ttl or a limit out of range, and a context that cannot be read (_reject_context);
--           23503 for an agent that the run does not have; 23505 for a turn id that was used before
--   locks:  see _insert_turns; the contexts against prune. The caller holds the heads (K9) and the runs
create function heliograph._enqueue(p_project text, p_activations jsonb, p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_wrong text;
    v_turns heliograph.new_turn[];
    v_heads tid[];
    v_epochs bigint[];  -- of the turns that are dispatched
    v_is_new boolean;   -- an agent has no head yet
    v_lacks_agents boolean;
    v_created text[] := '{}';
    v_moved text[];
begin
    v_wrong := (select min(heliograph._wrong_turn(a)) from jsonb_array_elements(p_activations) a);
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
    perform heliograph._check_options(p_project, p_activations);
    v_turns := array(select t from heliograph._new_turns(null, null, null, p_activations) t);
    select array_agg(h.at order by t.n),
           array_agg(case when coalesce(h.status, 'idle') = 'idle' and t.place = 1 and not exists (
                               select from heliograph.agent_turns q
                                where q.project_id = p_project and q.agent_id = t.agent_id and q.state = 'queued')
                          then coalesce(h.turn_epoch, 0) + 1 end order by t.n),
           bool_or(h.at is null), bool_or(h.at is null and t.target is null)
      into v_heads, v_epochs, v_is_new, v_lacks_agents
      from (select u.n, u.agent_id, u.target, row_number() over (partition by u.agent_id order by u.n) as place
              from rows from (generate_series(1, cardinality(v_turns)), unnest(v_turns)) u (n)) t
      left join lateral (
           select x.ctid as at, x.turn_epoch, x.status from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = t.agent_id offset 0) h on true;
    if v_lacks_agents then
        perform heliograph._raise_no_agent(p_project, p_activations);
    end if;
    perform heliograph._insert_turns(p_project, v_turns, v_epochs, p_now);
    if v_is_new then
        v_created := heliograph._insert_heads(p_project, v_turns, array(
            select case when t.at is null then t.epoch end from unnest(v_heads, v_epochs) t (at, epoch)), '{}', p_now);
    end if;
    with moved as (
        update heliograph.agent_state_head h
           set status = 'dispatched', turn_epoch = t.epoch, active_agent_turn_id = t.turn_id, priority = t.priority,
               pool = t.pool, ready_at = p_now, due_at = case when t.starts_at > p_now then t.starts_at end,
               activation_seq = t.activation_seq,
               expecting_correlation_id = case when t.message_type = 'ui_action' then t.turn_id end,
               moved_at = greatest(p_now, h.moved_at)
          from rows from (unnest(v_heads), unnest(v_epochs), unnest(v_turns)) t (at, epoch)
         where h.ctid = t.at and t.epoch is not null
        returning h.agent_id
    )
    select array_agg(m.agent_id order by m.agent_id) into v_moved from moved m;
    return coalesce(v_created || v_moved, '{}');
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

-- _wrong_turn: null, or the problem of the numbers and ids of an activation. They are checked when they are written:
--   otherwise they would fail the turn whose end dispatches this one.
create function heliograph._wrong_turn(p_item jsonb) returns text
    language plpgsql immutable as $$
declare
    v_wrong text := heliograph._wrong_id('a turn id', p_item ->> 'turn_id');
begin
    if v_wrong is not null then
        return v_wrong;
    elsif p_item @@ 'strict $.ttl_seconds >= 0.000001 && $.ttl_seconds <= 31622400 && $.max_attempts >= 1
                     && $.max_attempts <= 1000 && $.priority >= 0 && $.priority <= 3'
      and not p_item ?| '{instance,pool,result_fields,budget,callback_url,context_box_id,actor,message_type}' then
        return null;  -- the usual case, in one expression: PostgreSQL sets up each expression once per transaction
    elsif not coalesce(jsonb_typeof(p_item -> 'ttl_seconds') = 'number', false)
       or not (p_item ->> 'ttl_seconds')::numeric between 1e-6 and 31622400 then
        v_wrong := format('ttl_seconds must be above 0 and at most 31622400, which is 366 days, not %s',
                          left(p_item ->> 'ttl_seconds', 60));
    elsif not coalesce((p_item ->> 'max_attempts')::integer between 1 and 1000, false) then
        v_wrong := format('max_attempts must be between 1 and 1000, not %s', p_item ->> 'max_attempts');
    elsif not coalesce((p_item ->> 'priority')::integer, 1) between 0 and 3 then
        v_wrong := format('priority must be between 0 (low) and 3 (critical), not %s', p_item ->> 'priority');
    else
        v_wrong := heliograph._wrong_options(p_item);
    end if;
    return case when v_wrong is not null then format('turn %s: %s', left(p_item ->> 'turn_id', 60), v_wrong) end;
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

-- _activated: the heads that reactions of these runs wake. Activations that are no array wake none: react judges them
--   later, with their item.
create function heliograph._activated(p_run_ids text[], p_reactions jsonb[]) returns text[]
    language plpgsql immutable as $$
declare
    v_agents text[] := '{}';
begin
    for n in 1 .. cardinality(p_reactions) loop
        if jsonb_typeof(p_reactions[n] -> 'activations') = 'array' and p_reactions[n] -> 'activations' <> '[]' then
            v_agents := v_agents || array(select p_run_ids[n] || '/' || (a ->> 'agent')
                                            from jsonb_array_elements(p_reactions[n] -> 'activations') a);
        end if;
    end loop;
    return v_agents;
end $$;
