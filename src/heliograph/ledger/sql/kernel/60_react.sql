-- react: pay what a run owes: the reaction to signals that nobody has reacted to (K25).
--   p_items: [{run_id, signals: [draft], reaction}], computed from sweep_owed's answer.
--   Answers [{run_id, outcome, targets}]: 'ok'; 'conflict' when the run moved on: somebody else reacted, or will.
--   raises: 23514 for a run that may not end yet, or has ended
--   locks:  the heads of the agents activated, then the runs
create function heliograph.react(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_item jsonb;
    v_targets text[];
    v_outcome text;
    v_answer jsonb := '[]';
begin
    perform heliograph._lock_heads(p_project, (
        select array_agg((i ->> 'run_id') || '/' || (a ->> 'agent'))
          from jsonb_array_elements(p_items) i, jsonb_array_elements(i #> '{reaction,activations}') a));
    perform heliograph._lock_runs(p_project, (select array_agg(i ->> 'run_id') from jsonb_array_elements(p_items) i));
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_targets := '{}';
        v_outcome := 'conflict';
        if (select version from heliograph.runs where project_id = p_project and run_id = v_item ->> 'run_id')
           = (v_item #>> '{reaction,version}')::bigint then
            -- an equal version means that nothing became owed since: all that is owed is reacted to now
            update heliograph.signals set owed = false
             where project_id = p_project and run_id = v_item ->> 'run_id' and owed;
            update heliograph.runs set owed = 0 where project_id = p_project and run_id = v_item ->> 'run_id';
            v_targets := heliograph._react(p_project, v_item ->> 'run_id', null, 0, v_item -> 'signals',
                                           v_item -> 'reaction', p_now);
            v_outcome := 'ok';
        end if;
        v_answer := v_answer || jsonb_build_object('run_id', v_item ->> 'run_id', 'outcome', v_outcome,
                                                   'targets', to_jsonb(v_targets));
    end loop;
    return v_answer;
end $$;
