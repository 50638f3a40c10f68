-- The doctor's checks of circuit breakers.

-- _doctor_circuits: C1 to C3.
create function heliograph._doctor_circuits(p_project text) returns table (found text, subject text)
    language sql stable as $$
    with k as (select c.*, b.state, coalesce(b.generation, 0) as present
                 from heliograph.circuit_calls c
                 left join heliograph.circuit_breakers b
                   on b.project_id = p_project and b.type = c.type and b.target = c.target
                where c.project_id = p_project)
    select 'C1 no call counts before its breaker has that state', k.type || ' ' || k.target || ' ' || k.call_id
      from k where k.generation > k.present
    union all
    select 'C2 only a breaker that is half open has trials', k.type || ' ' || k.target || ' ' || k.call_id
      from k where k.generation = k.present and k.status <> 'failure' and k.state is distinct from 'half_open'
    union all
    select 'C3 a trial is a call that its breaker admitted as one', k.type || ' ' || k.target || ' ' || k.call_id
      from k
      join heliograph.turn_waiting_tools w
        on w.project_id = p_project and w.agent_turn_id = k.agent_turn_id and w.tool_call_id = k.call_id
     where k.generation = k.present and k.status = 'trial'
       and w.circuit is distinct from jsonb_build_object('type', k.type, 'target', k.target, 'generation',
                                                         k.generation, 'is_trial', true)
$$;
