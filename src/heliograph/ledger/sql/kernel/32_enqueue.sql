-- enqueue: wake agents of runs from outside (L0-30 to L0-34, L0-48).
--   p_messages: [{run_id, agent, turn_id, cause, priority, max_attempts, ttl_seconds, name, payload}]. The message
--   enters the log as signal `name` (parent: signal id `cause`, or the root), agent:activated follows it, and the turn
--   waits its turn: one enqueue is one turn (L0-06).
--   Answers [{turn_id, outcome, targets}] in the order of p_messages: 'queued'; 'duplicate' for a turn id that exists, 'conflict'
--   if it was another message's; 'unknown_agent'; 'ended' for a run that is over.
--   raises: 22023 for a priority, a ttl or a limit out of range
--   locks:  the heads (K9), then the runs
create function heliograph.enqueue(p_project text, p_messages jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_heads text[];
    v_message jsonb;
    v_agent_id text;
    v_run_id text;
    v_targets text[];
    v_outcome text;
    v_answer jsonb := '[]';
begin
    v_heads := heliograph._lock_heads(p_project, (
        select array_agg((m ->> 'run_id') || '/' || (m ->> 'agent')) from jsonb_array_elements(p_messages) m));
    perform heliograph._lock_runs(p_project, (select array_agg(m ->> 'run_id') from jsonb_array_elements(p_messages) m));
    for v_message in select item from jsonb_array_elements(p_messages) with ordinality m (item, n) order by n loop
        v_run_id := v_message ->> 'run_id';
        v_agent_id := v_run_id || '/' || (v_message ->> 'agent');
        v_targets := '{}';
        -- a head that came to be after the locks were taken is not there yet: nothing is written without the lock
        if not exists (select from heliograph.agent_state_head
                        where project_id = p_project and agent_id = v_agent_id and agent_id = any (v_heads)
                          and run_id = v_run_id) then
            v_outcome := 'unknown_agent';
        elsif exists (select from heliograph.agent_turns
                       where project_id = p_project and agent_turn_id = v_message ->> 'turn_id') then
            v_outcome := heliograph._same_message(p_project, v_message);
        elsif (select status <> 'running' from heliograph.runs where project_id = p_project and run_id = v_run_id) then
            v_outcome := 'ended';
        else
            v_targets := heliograph._react(p_project, v_run_id, null, 0,
                jsonb_build_array(
                    jsonb_build_object('name', v_message ->> 'name', 'payload', coalesce(v_message -> 'payload', '{}'),
                                       'parent', coalesce(v_message ->> 'cause', heliograph._signal_id(v_run_id, 1))),
                    jsonb_build_object('name', 'agent:activated', 'parent', 0, 'agent', v_message ->> 'agent',
                                       'payload', jsonb_build_object('agent', v_message ->> 'agent'))),
                jsonb_build_object('activations',
                    jsonb_build_array(v_message || jsonb_build_object('cause', 0, 'activation', 1))), p_now);
            v_outcome := 'queued';
        end if;
        v_answer := v_answer || jsonb_build_object('turn_id', v_message ->> 'turn_id', 'outcome', v_outcome,
                                                   'targets', to_jsonb(v_targets));
    end loop;
    return v_answer;
end $$;

-- _check_limits: refuse numbers that no turn may have.
--   raises: 22023 naming the field
--   locks:  nothing
create function heliograph._check_limits(p_item jsonb) returns void
    language plpgsql immutable as $$
begin
    if not coalesce((p_item ->> 'ttl_seconds')::float8 between 1e-6 and 31622400, false) then
        raise exception using errcode = '22023', message = 'ttl_seconds must be above 0 and at most 366 days';
    elsif not coalesce((p_item ->> 'max_attempts')::integer between 1 and 1000, false) then
        raise exception using errcode = '22023', message = 'max_attempts must be between 1 and 1000';
    elsif not coalesce((p_item ->> 'priority')::integer, 1) between 0 and 3 then
        raise exception using errcode = '22023', message = 'priority must be between 0 (low) and 3 (critical)';
    end if;
end $$;

-- _same_message: 'duplicate' when the turn that has this id came from the same agent, name and payload.
--   raises: nothing
--   locks:  nothing
create function heliograph._same_message(p_project text, p_message jsonb) returns text
    language sql stable as $$
    select case when t.agent_id = (p_message ->> 'run_id') || '/' || (p_message ->> 'agent')
                 and s.name = p_message ->> 'name' and s.payload = coalesce(p_message -> 'payload', '{}')
                then 'duplicate' else 'conflict' end
      from heliograph.agent_turns t
      join heliograph.signals s on s.project_id = t.project_id and s.run_id = t.run_id and s.seq = t.cause_seq
     where t.project_id = p_project and t.agent_turn_id = p_message ->> 'turn_id'
$$;
