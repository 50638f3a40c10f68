-- react: commit the pending reactions of runs (K25).
--   p_items: [{run_id, version, signals: [draft], reaction, recording}], computed from the answer of
--   sweep_pending_reactions. version: that of the run from which the reaction was computed. recording: see
--   _recording_of.
--   Returns [{run_id, outcome, targets}] in the order of p_items. 'ok'. 'conflict': the run has changed since. Another
--   worker has reacted, or the next sweep returns the run again. 'rejected' with code and message: payload_too_large,
--   fan_out, queue_full, invalid_signal, or a SQLSTATE such as 23514 for a run that may not end yet. The run counts
--   its rejections, and sweep_pending_reactions returns runs with fewer of them first (K23).
--   raises: see _enter; an invalid item does not raise, its outcome is 'rejected'
--   locks:  the heads of the agents activated, then the runs
create function heliograph.react(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_bytes integer;
    v_item jsonb;
    v_settles_from bigint;
    v_woken text[];
    v_verdict jsonb;
    v_wrong text;
    v_answer jsonb := '[]';
begin
    v_bytes := heliograph._check_json(p_items);
    perform heliograph._lock_heads(p_project, heliograph._activated(
        array(select i ->> 'run_id' from jsonb_array_elements(p_items) i),
        array(select i -> 'reaction' from jsonb_array_elements(p_items) i)));
    perform heliograph._lock_runs(p_project, (select array_agg(i ->> 'run_id') from jsonb_array_elements(p_items) i));
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_woken := '{}';
        v_verdict := '{"outcome": "conflict"}';
        v_wrong := heliograph._wrong_item('p_items[]', v_item, '{run_id,version,signals,reaction,recording}');
        if v_wrong is not null then
            v_verdict := heliograph._rejection('22023', v_wrong);
        elsif (select version from heliograph.runs where project_id = p_project and run_id = v_item ->> 'run_id')
           = (v_item ->> 'version')::bigint and jsonb_typeof(v_item -> 'reaction') = 'object' then
            v_verdict := coalesce(case when heliograph._exceeds(v_item, v_bytes, v_limits.payload_bytes_max)
                                       then heliograph._reject_signals(v_item -> 'signals', v_limits) end,
                                  heliograph._reject_activations(p_project, v_item ->> 'run_id',
                                      coalesce(v_item #> '{reaction,activations}', '[]'), v_limits),
                                  (select heliograph._reject_drafts(r.run_id, r.signal_seq, v_item -> 'signals')
                                     from heliograph.runs r
                                    where r.project_id = p_project and r.run_id = v_item ->> 'run_id'),
                                  '{"outcome": "ok"}');
        end if;
        if v_verdict ->> 'outcome' = 'ok' then
            begin  -- a savepoint: a rejected item leaves nothing behind
                -- an equal version means that no signal became pending since: this reaction covers all of them
                with settled as (
                    update heliograph.signals set is_pending = false
                     where project_id = p_project and run_id = v_item ->> 'run_id' and is_pending returning seq)
                select min(seq) into v_settles_from from settled;
                update heliograph.runs set pending_reactions = 0, rejections = 0 where project_id = p_project
                    and run_id = v_item ->> 'run_id';
                v_woken := heliograph._commit_reactions(
                    p_project, '{1}', array[v_item ->> 'run_id'], '{null}', array[nullif(v_item -> 'signals', 'null')],
                    array[v_item -> 'reaction'], array[heliograph._recording_of(v_item -> 'recording')],
                    array[v_settles_from - 1], 0, p_now);
            exception when data_exception or integrity_constraint_violation then
                v_verdict := heliograph._rejection(sqlstate, sqlerrm);
            end;
        end if;
        if v_verdict ->> 'outcome' = 'rejected' then
            update heliograph.runs set rejections = rejections + 1 where project_id = p_project
                and run_id = v_item ->> 'run_id';
        end if;
        v_answer := v_answer || (jsonb_build_object('run_id', v_item ->> 'run_id')
                                 || heliograph._bells(p_project, v_woken) || v_verdict);
    end loop;
    return v_answer;
end $$;
