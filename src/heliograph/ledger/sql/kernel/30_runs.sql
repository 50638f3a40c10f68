-- Runs: what a reaction reads, and what it changes.

-- _run_view: what a reaction is computed from; its version guards the commit (K24).
create function heliograph._run_view(p_run heliograph.runs) returns jsonb
    language sql stable as $$
    select jsonb_build_object('run_id', p_run.run_id, 'status', p_run.status, 'version', p_run.version,
                              'state', p_run.state, 'memory', p_run.memory, 'open_turns', p_run.open_turns,
                              'pending_reactions', p_run.pending_reactions, 'activations', p_run.activations)
$$;

-- _enqueue: one turn for each activation {agent, instance, run_id, base, turn_id, cause, activation, priority,
--   max_attempts, ttl_seconds, context_box_id, result_fields, message_type, parent_turn_id, parent_call_id, depth,
--   actor, budget, budgets, callback_url}. budget: its own, by kind; budgets: the owners of those that hold for its
--   parent. Each has a turn row, inbox row and edge (L0-30, L0-31, L0-33). cause and activation are indexes into the
--   drafts that were logged after position base, or cause is {"seq": n} for a signal that was in the log before.
--   The first one of an idle agent is dispatched at once (L0-34); the others are queued. The caller raises open_turns.
--   An activation that names a target may be for an agent that has no head yet: it gets one.
--   Returns the agents that it woke.
--   raises: 22023 for a priority, a ttl or a limit out of range, and a context that cannot be read (see
--           _refuse_context), 23503 for an agent that the run does not have,
--           23505 for a turn id used before
--   locks:  a turn id that another caller creates at the same moment; the contexts against prune. The caller holds the
--   heads (K9)
--           and the runs
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
                                          else a.base + 1 + a.cause::bigint end as cause_seq,
               a.base + 1 + a.activation as activation_seq
          from rows from (jsonb_to_recordset(p_activations) as
               (run_id text, base bigint, agent text, instance text, turn_id text, cause jsonb, activation bigint,
                priority smallint, max_attempts integer, ttl_seconds float8, context_box_id text, result_fields jsonb,
                message_type text, parent_turn_id text, parent_call_id text, depth smallint, actor text, target text,
                budgets text[], callback_url text))
               with ordinality a (run_id, base, agent, instance, turn_id, cause, activation, priority, max_attempts,
                ttl_seconds, context_box_id, result_fields, message_type, parent_turn_id, parent_call_id, depth, actor,
                target, budgets, callback_url, n)
    ), placed as materialized (
        select a.*, h.at, coalesce(h.turn_epoch, 0) + 1 as epoch, h.at is null as is_new,
               coalesce(h.status, 'idle') = 'idle' and row_number() over (partition by a.agent_id order by a.n) = 1
               and not exists (select from heliograph.agent_turns q
                                where q.project_id = p_project and q.agent_id = a.agent_id
                                  and q.state = 'queued') as is_next
          from asked a
          left join lateral (
               select x.ctid as at, x.turn_epoch, x.status from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = a.agent_id offset 0) h on true
         where h.at is not null or a.target is not null
    ), turn as (
        insert into heliograph.agent_turns
            (project_id, agent_turn_id, agent_id, run_id, state, message_type, priority, max_attempts, depth,
             parent_turn_id, parent_call_id, cause_seq, activation_seq, context_box_id, output_box_id, result_fields,
             actor, created_at, expires_at, budgets, callback_url)
        select p_project, p.turn_id, p.agent_id, p.run_id, case when p.is_next then 'active' else 'queued' end,
               coalesce(p.message_type, 'turn'), coalesce(p.priority, 1), p.max_attempts, coalesce(p.depth, 0),
               p.parent_turn_id, p.parent_call_id, p.cause_seq, p.activation_seq, p.context_box_id,
               'box_' || p.turn_id, p.result_fields, p.actor, p_now, p_now + make_interval(secs => p.ttl_seconds),
               p.budgets, p.callback_url
          from placed p order by p.n
    ), message as (
        insert into heliograph.agent_inbox
            (project_id, agent_turn_id, agent_id, message_type, status, turn_epoch, correlation_id, payload_box_id,
             actor, next_retry_at, created_at)
        select p_project, p.turn_id, p.agent_id, coalesce(p.message_type, 'turn'),
               case when p.is_next then 'pending' else 'queued' end, case when p.is_next then p.epoch end,
               heliograph._signal_id(p.run_id, p.cause_seq), p.context_box_id, p.actor, p_now, p_now
          from placed p order by p.n
    ), edge as (
        insert into heliograph.execution_edges
            (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, other_turn_id, cause_id, created_at)
        select p_project, p.turn_id, 'enqueue', 'request', p.run_id, p.agent_id, p.parent_turn_id,
               heliograph._signal_id(p.run_id, p.cause_seq), p_now
          from placed p order by p.n
    ), created as (
        insert into heliograph.agent_state_head
            (project_id, agent_id, run_id, agent_name, target, status, turn_epoch, active_agent_turn_id, priority,
             ready_at, trace_id, parent_step_id, moved_at)
        select p_project, p.agent_id, p.run_id, p.agent, p.target, 'dispatched', p.epoch, p.turn_id,
               coalesce(p.priority, 1), p_now, p.run_id, heliograph._signal_id(p.run_id, p.activation_seq), p_now
          from placed p where p.is_new and p.is_next order by p.agent_id
        returning agent_id
    ), dispatched as (
        update heliograph.agent_state_head h
           set status = 'dispatched', turn_epoch = p.epoch, active_agent_turn_id = p.turn_id,
               priority = coalesce(p.priority, 1), ready_at = p_now, trace_id = p.run_id,
               parent_step_id = heliograph._signal_id(p.run_id, p.activation_seq),
               expecting_correlation_id = case when p.message_type = 'ui_action' then p.turn_id end,
               moved_at = greatest(p_now, h.moved_at)
          from placed p
         where h.ctid = p.at and p.is_next
        returning h.agent_id
    )
    select (select array_agg(agent_id order by agent_id)
              from (select agent_id from created union all select agent_id from dispatched) t), (select count(*)
                      from placed)
      into v_woken, v_count;
    if v_count < jsonb_array_length(p_activations) then
        raise exception using errcode = '23503', message = 'an activation names an agent that its run does not have';
    end if;
    return coalesce(v_woken, '{}');
end $$;

-- _check_limits: refuse numbers and ids that no turn may have, here, where they are written: later they would be
--   refused to the turn whose end dispatches this one.
--   raises: 22023 naming the field
create function heliograph._check_limits(p_item jsonb) returns void
    language plpgsql immutable as $$
declare
    v_wrong text;
begin
    if not coalesce(jsonb_typeof(p_item -> 'ttl_seconds') = 'number', false)
       or not (p_item ->> 'ttl_seconds')::numeric between 1e-6 and 31622400 then
        raise exception using errcode = '22023', message = 'ttl_seconds must be above 0 and at most 366 days';
    elsif not coalesce((p_item ->> 'max_attempts')::integer between 1 and 1000, false) then
        raise exception using errcode = '22023', message = 'max_attempts must be between 1 and 1000';
    elsif not coalesce((p_item ->> 'priority')::integer, 1) between 0 and 3 then
        raise exception using errcode = '22023', message = 'priority must be between 0 (low) and 3 (critical)';
    end if;
    v_wrong := coalesce(
        heliograph._wrong_id('a turn id', p_item ->> 'turn_id'),
        case when p_item ->> 'instance' is not null then heliograph._wrong_id('an instance', p_item ->> 'instance') end,
        case when p_item -> 'result_fields' is not null then heliograph._wrong_fields(p_item -> 'result_fields') end,
        case when p_item -> 'budget' is not null then heliograph._wrong_amounts('a budget', p_item -> 'budget') end,
        case when p_item -> 'callback_url' is not null then heliograph._wrong_url(p_item -> 'callback_url') end,
        case when octet_length(p_item ->> 'context_box_id') > 200 then 'context_box_id has at most 200 bytes'
             when octet_length(p_item ->> 'actor') > 200 then 'actor has at most 200 bytes'
             when strpos(p_item ->> 'instance', '/') > 0 then 'an instance has no slash'
             when not coalesce(p_item ->> 'message_type' in ('turn', 'ui_action'), true)
                 then 'message_type is turn or ui_action' end);
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
end $$;

-- _commit_reactions: reactions {version, state, memory, status, outcome, activations, stops, is_message} with their
--   signals, of runs that do not repeat. p_items: [{run_id or agent_id, turn_id, signals, reaction}]; p_closed: how
--   many turns each ended in this transaction. state and memory may be absent: unchanged. stops: see _stop_open_turns.
--   is_message: a message from outside, which restarts the count of max_activations. keeps_taint: the untrusted keys of
--   the run's memory stay as they are, whatever the new memory says. Returns the agents that it woke.
--   The caller has compared the versions.
--   raises: 23514 for a run that has ended, or would end with a turn open or a reaction pending (K26); see _enqueue
--   locks:  see _enqueue; the caller holds the heads of the activated agents and the runs
create function heliograph._commit_reactions(p_project text, p_items jsonb, p_closed integer, p_now timestamptz)
    returns text[] language plpgsql as $$
declare
    v_activations jsonb;
    v_called_back text[];
    v_stops jsonb;
    v_woken text[] := '{}';
    v_count integer;
begin
    with reaction as materialized (
        select r.at, r.run_id, i.turn_id, i.signals, i.reaction, r.signal_seq as base,
               coalesce(jsonb_array_length(i.signals), 0) as written,
               coalesce(jsonb_array_length(i.reaction -> 'activations'), 0) as more
          from jsonb_to_recordset(p_items) as i (run_id text, agent_id text, turn_id text, signals jsonb,
                                                 reaction jsonb)
         cross join lateral (
               select x.ctid as at, x.run_id, x.signal_seq from heliograph.runs x
                where x.project_id = p_project and x.run_id = case when i.run_id is null
                    then heliograph._run_of(i.agent_id) else i.run_id end
                  and x.status <> 'ended' offset 0) r
    ), logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at)
        select p_project, run_id, base + 1, written, signals, turn_id, p_now from reaction
         where written > 0
    ), changed as (
        update heliograph.runs r
           set signal_seq = n.base + n.written, version = r.version + 1,
               open_turns = r.open_turns - p_closed + n.more, activations = r.activations + n.more,
               state = coalesce(n.reaction -> 'state', r.state), memory = case when n.reaction ? 'is_message'
                   then r.memory || jsonb_build_object('activations_before', r.activations)
                   when n.reaction ? 'keeps_taint' and jsonb_typeof(r.memory -> 'untrusted_keys') = 'array'
                   then n.reaction -> 'memory' || jsonb_build_object('untrusted_keys', r.memory -> 'untrusted_keys')
                   else coalesce(n.reaction -> 'memory', r.memory) end,
               status = coalesce(n.reaction ->> 'status', r.status), outcome = n.reaction ->> 'outcome',
               ended_at = case when n.reaction ->> 'status' = 'ended' then p_now end, updated_at = p_now
          from reaction n
         where r.ctid = n.at
        returning r.run_id, r.status = 'ended' and r.callback_url is not null as calls_back
    )
    select (select count(*) from changed), (select array_agg(c.run_id order by c.run_id) from changed c
                                            where c.calls_back),
           (select jsonb_agg(a.item || jsonb_build_object('run_id', n.run_id, 'base', n.base) order by n.run_id, a.n)
              from reaction n
             cross join lateral jsonb_array_elements(n.reaction -> 'activations') with ordinality a (item, n)
             where n.more > 0),
           (select jsonb_agg(n.reaction -> 'stops' || jsonb_build_object('run_id', n.run_id) order by n.run_id)
              from reaction n where n.reaction ->> 'stops' is not null)
      into v_count, v_called_back, v_activations, v_stops;
    if v_count < jsonb_array_length(p_items) then
        raise exception using errcode = '23514', message = 'the run has ended, and ends only once';
    end if;
    if v_called_back is not null then
        perform heliograph._create_run_callbacks(p_project, v_called_back, p_now);
    end if;
    if v_activations is not null then
        v_woken := heliograph._enqueue(p_project, v_activations, p_now);
    end if;
    if v_stops is not null then
        perform heliograph._stop_open_turns(p_project, v_stops, p_now);
    end if;
    return v_woken;
end $$;

-- _stop_open_turns: stop open turns of runs that begin to end. p_stops: [{run_id, turns, reason}]; turns: all, or
--   people for those that wait for people only, whose answers have no use any more. Gracefully: a turn that does not
--   run ends at once.
--   locks:  rows of the outbox; the caller holds the runs
create function heliograph._stop_open_turns(p_project text, p_stops jsonb, p_now timestamptz) returns void
    language plpgsql as $$
begin
    perform heliograph._order_stops(p_project, s ->> 'run_id', coalesce(s ->> 'turns' = 'human_waits', false),
                                    jsonb_build_object(
                'mode', 'graceful', 'grace_seconds', null, 'reason', left(s ->> 'reason', 200), 'actor', null), p_now)
       from jsonb_array_elements(p_stops) s;
end $$;

-- _order_stops: put a stop of each open turn of a run into the outbox, so that each ends in its own transaction;
--   p_only_human: only those that wait for people themselves, since a turn that waits for delegated turns may still get
--   a result. p_body: the stop, {mode, grace_seconds, reason, actor}.
--   locks:  rows of the outbox; the caller holds the run
create function heliograph._order_stops(
    p_project text, p_run_id text, p_only_human boolean, p_body jsonb, p_now timestamptz
) returns void language plpgsql as $$
begin
    insert into heliograph.outbox (project_id, key, kind, agent_turn_id, body, created_at, due_at)
    select p_project, 'stop:' || t.agent_turn_id, 'stop', t.agent_turn_id, p_body, p_now, p_now
      -- those of the run: not all that are open
      from (select x.agent_turn_id, x.state, x.human_wait_since from heliograph.agent_turns x
             where x.project_id = p_project and x.run_id = p_run_id order by x.queue_seq offset 0) t
     where t.state <> 'done' and (not p_only_human or t.human_wait_since is not null and not exists (
           select from heliograph.turn_waiting_tools w
            where w.project_id = p_project and w.agent_turn_id = t.agent_turn_id and w.state = 'open'
              and w.kind = 'child'))
     order by t.agent_turn_id
    -- delivered before or not: it is on its way again, unless it was the stronger
    on conflict (project_id, key) do update
       set body = excluded.body, due_at = excluded.due_at, deliveries = 0, published_at = null
     where outbox.body ->> 'mode' <> 'force' or excluded.body ->> 'mode' = 'force';
end $$;

-- _activated: the heads that the reactions of p_items wake.
create function heliograph._activated(p_items jsonb) returns text[]
    language sql immutable as $$
    select coalesce(array_agg(distinct coalesce(i ->> 'run_id', heliograph._run_of(i ->> 'agent_id')) || '/'
                              || (a ->> 'agent')), '{}')
      from jsonb_array_elements(p_items) i, jsonb_array_elements(i #> '{reaction,activations}') a
$$;
