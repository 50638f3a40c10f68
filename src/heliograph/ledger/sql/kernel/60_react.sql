-- react: commit the pending reactions of runs (K25).
--   p_items: {run_id, version, signals: [draft], reaction, recording}, as one array for each key, computed from the
--   answer of sweep_pending_reactions. version: that of the run from which the reaction was computed. recording: see
--   _recording_of.
--   Returns rows {run_id, outcome, targets, woken, code, message} in the order of the items. 'ok', with targets, the
--   workers to notify, and woken, the agents that it woke. 'conflict': the run has changed since. Another worker has
--   reacted, or the next sweep returns the run again. 'rejected' with code and message: payload_too_large, fan_out,
--   queue_full, invalid_signal, or a SQLSTATE such as 23514 for a run that may not end yet. The run counts its
--   rejections, and sweep_pending_reactions returns runs with fewer of them first (K23).
--   raises: see _enter; 22023 for arrays of the wrong shape; an invalid item does not raise: its outcome is
--           'rejected'
--   locks:  the heads of the agents activated, then the runs
create function heliograph.react(
    p_project text, p_run_id text[], p_version bigint[], p_signals jsonb[], p_reaction jsonb[], p_recording jsonb[],
    p_now timestamptz
) returns table (run_id text, outcome text, targets text[], woken text[], code text, message text)
    language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_bytes integer;
    v_woken text[];
    v_verdict jsonb;
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_run_id), heliograph._shape(p_version), heliograph._shape(p_signals),
        heliograph._shape(p_reaction), heliograph._shape(p_recording)]);
    v_bytes := heliograph._check_columns(p_signals || p_reaction || p_recording);
    p_signals := array_replace(p_signals, 'null', null);
    perform heliograph._lock_heads(p_project, heliograph._activated(p_run_id, p_reaction));
    perform heliograph._lock_runs(p_project, p_run_id);
    for n in 1 .. cardinality(p_run_id) loop
        v_woken := '{}';
        v_verdict := heliograph._judge_reaction(p_project, p_run_id[n], p_version[n], p_signals[n], p_reaction[n],
                                                p_recording[n], v_bytes, v_limits);
        if v_verdict is null then
            begin  -- a savepoint: a rejected item leaves nothing behind
                v_woken := heliograph._settle_reactions(p_project, p_run_id[n], p_signals[n], p_reaction[n],
                                                        p_recording[n], p_now);
            exception when data_exception or integrity_constraint_violation then
                v_verdict := heliograph._rejection(sqlstate, sqlerrm);
            end;
        end if;
        if v_verdict ->> 'outcome' = 'rejected' then
            update heliograph.runs x set rejections = x.rejections + 1
             where x.project_id = p_project and x.run_id = p_run_id[n];
        end if;
        run_id := p_run_id[n];
        outcome := coalesce(v_verdict ->> 'outcome', 'ok');
        targets := heliograph._queues(p_project, v_woken);
        woken := case when cardinality(v_woken) > 0 then array(select distinct a from unnest(v_woken) a order by a) end;
        code := v_verdict ->> 'code';
        message := v_verdict ->> 'message';
        return next;
    end loop;
end $$;

-- _judge_reaction: null for a reaction that can be committed, or the conflict or the rejection. p_bytes: see _exceeds.
--   The caller holds the run.
create function heliograph._judge_reaction(
    p_project text, p_run_id text, p_version bigint, p_signals jsonb, p_reaction jsonb, p_recording jsonb,
    p_bytes integer, p_limits heliograph.project_limits
) returns jsonb language plpgsql stable as $$
declare
    v_wrong constant text := heliograph._wrong_commit(p_reaction, p_recording);
    v_base bigint;
begin
    if v_wrong is not null then
        return heliograph._rejection('22023', v_wrong);
    end if;
    select r.signal_seq into v_base from heliograph.runs r
     where r.project_id = p_project and r.run_id = p_run_id and r.version = p_version;
    if v_base is null or jsonb_typeof(p_reaction) is distinct from 'object' then
        return '{"outcome": "conflict"}';
    end if;
    return coalesce(
        case when heliograph._exceeds(p_signals, p_bytes, p_limits.payload_bytes_max)
             then heliograph._reject_signals(p_signals, p_limits) end,
        heliograph._reject_activations(p_project, p_run_id, coalesce(p_reaction -> 'activations', '[]'), p_limits),
        heliograph._reject_drafts(p_run_id, v_base, p_signals));
end $$;

-- _settle_reactions: commit the reaction to all pending signals of a run: an equal version means that none became
--   pending since. Returns the agents that it woke.
--   raises: see _commit_reactions
--   The caller holds the heads of the activated agents and the run.
create function heliograph._settle_reactions(
    p_project text, p_run_id text, p_signals jsonb, p_reaction jsonb, p_recording jsonb, p_now timestamptz
) returns text[] language plpgsql as $$
declare
    v_settles_from bigint;
begin
    with settled as (
        update heliograph.signals set is_pending = false
         where project_id = p_project and run_id = p_run_id and is_pending returning seq)
    select min(seq) into v_settles_from from settled;
    update heliograph.runs set pending_reactions = 0, rejections = 0
     where project_id = p_project and run_id = p_run_id;
    return heliograph._commit_reactions(
        p_project, '{1}', array[p_run_id], '{null}', array[p_signals], array[p_reaction],
        array[heliograph._recording_of(p_recording)], array[v_settles_from - 1], 0, p_now);
end $$;
