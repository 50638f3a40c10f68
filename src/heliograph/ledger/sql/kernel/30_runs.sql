-- Runs: what a reaction reads, and what it changes.

-- _run_view: what a reaction is computed from; its version guards the commit (K24).
--   raises: nothing
--   locks:  nothing
create function heliograph._run_view(p_project text, p_run_id text) returns jsonb
    language sql stable as $$
    select jsonb_build_object('run_id', run_id, 'status', status, 'version', version, 'state', state,
                              'memory', memory, 'open_turns', open_turns, 'owed', owed, 'activations', activations)
      from heliograph.runs where project_id = p_project and run_id = p_run_id
$$;

-- _enqueue: one turn for each activation {agent, turn_id, cause, activation, priority, max_attempts, ttl_seconds}
--   of a run: turn row, inbox row 'queued', edge (L0-30, L0-31, L0-33). cause and activation are positions in
--   the run's log. Dispatches nothing. The caller raises open_turns.
--   raises: 22023 for a priority, a ttl or a limit out of range, 23503 for an agent that the run does not have,
--           23505 for a turn id used before
--   locks:  nothing; the caller holds the heads (K9) and the run
create function heliograph._enqueue(
    p_project text, p_run_id text, p_activations jsonb, p_now timestamptz
) returns void language plpgsql as $$
begin
    -- refused here, where it is written: later it would be refused to the turn whose end dispatches this one
    perform heliograph._check_limits(a.item) from jsonb_array_elements(p_activations) a (item);
    insert into heliograph.agent_turns
        (project_id, agent_turn_id, agent_id, run_id, state, priority, max_attempts, cause_seq, activation_seq,
         context_box_id, output_box_id, created_at, expires_at)
    select p_project, a.turn_id, p_run_id || '/' || a.agent, p_run_id, 'queued', coalesce(a.priority, 1),
           a.max_attempts, a.cause, a.activation, a.context_box_id, 'box_' || a.turn_id,
           p_now, p_now + make_interval(secs => a.ttl_seconds)
      from rows from (jsonb_to_recordset(p_activations) as
           (agent text, turn_id text, priority smallint, max_attempts integer, cause bigint, activation bigint,
            context_box_id text, ttl_seconds float8)) with ordinality
           a (agent, turn_id, priority, max_attempts, cause, activation, context_box_id, ttl_seconds, n)
     order by a.n;
    insert into heliograph.agent_inbox
        (project_id, agent_id, agent_turn_id, message_type, status, correlation_id, payload_box_id, next_retry_at,
         created_at)
    select p_project, t.agent_id, t.agent_turn_id, 'turn', 'queued', heliograph._signal_id(p_run_id, t.cause_seq),
           t.context_box_id, p_now, p_now
      from jsonb_array_elements(p_activations) with ordinality a (item, n)
      join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = a.item ->> 'turn_id'
     order by a.n;
    insert into heliograph.execution_edges
        (project_id, primitive, edge_phase, run_id, agent_id, agent_turn_id, cause_id, created_at)
    select p_project, 'enqueue', 'request', p_run_id, p_run_id || '/' || (a.item ->> 'agent'), a.item ->> 'turn_id',
           heliograph._signal_id(p_run_id, (a.item ->> 'cause')::bigint), p_now
      from jsonb_array_elements(p_activations) with ordinality a (item, n)
     order by a.n;
end $$;

-- _place: activations with the log positions of their drafts. cause and activation arrive as an index into the
--   drafts of the same call, or cause as {"seq": n} for a signal that was already in the log.
--   raises: nothing
--   locks:  nothing
create function heliograph._place(p_activations jsonb, p_base bigint) returns jsonb
    language sql immutable as $$
    select coalesce(jsonb_agg(a.item || jsonb_build_object(
               'cause', coalesce((a.item #>> '{cause,seq}')::bigint, p_base + 1 + (a.item ->> 'cause')::bigint),
               'activation', p_base + 1 + (a.item ->> 'activation')::bigint) order by a.n), '[]')
      from jsonb_array_elements(p_activations) with ordinality a (item, n)
$$;

-- _react: commit a reaction {version, state, memory, status, outcome, activations} with its signals.
--   p_closed turns of this run ended in the same transaction. state and memory may be absent: unchanged.
--   Answers the targets to ring. The caller has compared the version.
--   raises: 23514 for a run that has ended, or would end with a turn open or a reaction owed (K26); see _enqueue
--   locks:  nothing; the caller holds the heads of the activated agents and the run
create function heliograph._react(
    p_project text, p_run_id text, p_turn_id text, p_closed integer, p_signals jsonb, p_reaction jsonb,
    p_now timestamptz
) returns text[] language plpgsql as $$
declare
    v_activations jsonb := coalesce(p_reaction -> 'activations', '[]');
    v_base bigint;
    v_written integer;
begin
    select signal_seq into v_base from heliograph.runs where project_id = p_project and run_id = p_run_id;
    v_written := heliograph._write_signals(p_project, p_run_id, v_base, p_turn_id, p_signals, p_now);
    update heliograph.runs
       set signal_seq = v_base + v_written, version = version + 1,
           open_turns = open_turns - p_closed + jsonb_array_length(v_activations),
           activations = activations + jsonb_array_length(v_activations),
           owed = owed + (select count(*) from jsonb_array_elements(p_signals) d where (d ->> 'owed')::boolean),
           state = coalesce(p_reaction -> 'state', state), memory = coalesce(p_reaction -> 'memory', memory),
           status = coalesce(p_reaction ->> 'status', status), outcome = p_reaction ->> 'outcome',
           ended_at = case when p_reaction ->> 'status' = 'ended' then p_now end, updated_at = p_now
     where project_id = p_project and run_id = p_run_id and status <> 'ended';
    if not found then
        raise exception using errcode = '23514', message = format('run "%s" has ended, and ends only once', p_run_id);
    end if;
    if v_activations = '[]' then
        return '{}';
    end if;
    perform heliograph._enqueue(p_project, p_run_id, heliograph._place(v_activations, v_base), p_now);
    return heliograph._dispatch_next(p_project, heliograph._agent_ids(p_run_id, v_activations), p_now);
end $$;

-- _agent_ids: the heads that activations of a run concern.
--   raises: nothing
--   locks:  nothing
create function heliograph._agent_ids(p_run_id text, p_activations jsonb) returns text[]
    language sql immutable as $$
    select coalesce(array_agg(distinct p_run_id || '/' || (a ->> 'agent')), '{}')
      from jsonb_array_elements(p_activations) a
$$;
