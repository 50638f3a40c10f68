-- start_runs: begin runs. Run, heads of all its agents, workflow:start and what it wakes: one transaction.
--   p_runs: [{run_id, target, request_hash, agents: [name], signals: [draft], reaction}], see _react.
--   Answers [{run_id, outcome, targets}]: 'started'; 'duplicate' for the same request again, which changes nothing;
--   'conflict' for a run id that another request has taken.
--   raises: 23514 for a reaction that the tables refuse, 23503 for one that wakes an agent which the run lacks
--   locks:  the new runs in ascending id, then their new heads: nobody else can know them yet
create function heliograph.start_runs(p_project text, p_runs jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_run jsonb;
    v_targets text[];
    v_answer jsonb := '[]';
    v_outcome text;
begin
    for v_run in select item from jsonb_array_elements(p_runs) with ordinality r (item, n) order by item ->> 'run_id', n loop
        insert into heliograph.runs (project_id, run_id, target, status, request_hash, state, memory, created_at, updated_at)
        values (p_project, v_run ->> 'run_id', v_run ->> 'target', 'running', v_run ->> 'request_hash', '{}', '{}',
                p_now, p_now)
        on conflict do nothing;
        v_targets := '{}';
        if found then
            insert into heliograph.agent_state_head (project_id, agent_id, run_id, agent_name, target, moved_at)
            select p_project, (v_run ->> 'run_id') || '/' || name, v_run ->> 'run_id', name, v_run ->> 'target', p_now
              from jsonb_array_elements_text(v_run -> 'agents') a (name)
             order by name;
            v_targets := heliograph._react(p_project, v_run ->> 'run_id', null, 0, v_run -> 'signals',
                                           v_run -> 'reaction', p_now);
            v_outcome := 'started';
        else
            select case when request_hash = v_run ->> 'request_hash' then 'duplicate' else 'conflict' end
              into v_outcome
              from heliograph.runs where project_id = p_project and run_id = v_run ->> 'run_id';
        end if;
        v_answer := v_answer || jsonb_build_object('run_id', v_run ->> 'run_id', 'outcome', v_outcome,
                                                   'targets', to_jsonb(v_targets));
    end loop;
    return v_answer;
end $$;
