-- Checks of the runs that start_runs is to start.

-- _check_runs: reject runs that cannot be written, and those with an unknown key.
--   raises: 22023 naming the field
create function heliograph._check_runs(p_runs heliograph.new_run[]) returns void
    language plpgsql immutable as $$
declare
    v_run heliograph.new_run;
    v_activations jsonb;
    v_wrong text;
begin
    foreach v_run in array p_runs loop
        v_wrong := coalesce(
            heliograph._wrong_id('a run id', v_run.run_id),
            case when heliograph._is_usual_run(v_run) is not true then heliograph._wrong_run(v_run) end);
        v_activations := v_run.reaction -> 'activations';
        for n in 0 .. coalesce(jsonb_array_length(v_activations), 0) - 1 loop
            v_wrong := coalesce(v_wrong, heliograph._wrong_activation('p_items[]', v_activations -> n));
        end loop;
        if v_wrong is not null then
            raise exception using errcode = '22023', message = v_wrong;
        end if;
    end loop;
end $$;

-- _wrong_agents: null, or the problem of the names of a run's agents.
create function heliograph._wrong_agents(p_agents jsonb) returns text
    language plpgsql immutable as $$
declare
    v_name text;
begin
    for n in 0 .. coalesce(jsonb_array_length(p_agents), 0) - 1 loop
        v_name := p_agents ->> n;
        if not coalesce(octet_length(v_name) between 1 and 200 and strpos(v_name, '/') = 0, false) then
            return 'agents: a name must have 1 to 200 bytes and no slash';
        end if;
    end loop;
    return null;
end $$;

-- _is_usual_run: whether a run with a valid id has only what most runs have, in the right form. Null counts as no.
create function heliograph._is_usual_run(p_run heliograph.new_run) returns boolean
    language sql immutable as $$
    select strpos(p_run.run_id, '/') = 0 and octet_length(p_run.target) <= 200 and p_run.request_hash is not null
           and p_run.callback_url is null and p_run.fork is null
           and case when p_run.recording is null then true
                    when jsonb_typeof(p_run.recording -> 'body') = 'string'
                    then octet_length(p_run.recording ->> 'body') <= 1000000 and p_run.recording - 'body' = '{}' end
           and heliograph._wrong_agents(p_run.agents) is null
           and case jsonb_typeof(p_run.reaction) when 'object' then
               p_run.reaction - '{activations,state,memory}'::text[] = '{}'
               and jsonb_typeof(p_run.reaction -> 'memory') = 'object' end
$$;

-- _wrong_run: null, or the problem of a run with a valid id.
create function heliograph._wrong_run(p_run heliograph.new_run) returns text
    language plpgsql immutable as $$
declare
    v_item constant jsonb := jsonb_build_object(
        'reaction', p_run.reaction, 'fork', p_run.fork, 'recording', p_run.recording);
begin
    return coalesce(
        heliograph._wrong_type('p_items[]', v_item, 'reaction', 'object'),
        heliograph._wrong_recording('p_items[]', v_item),
        heliograph._wrong_reaction('p_items[].reaction', p_run.reaction),
        heliograph._wrong_type('p_items[]', v_item, 'fork', 'object'),
        heliograph._wrong_fork('p_items[].fork', p_run.fork),
        'run ' || left(p_run.run_id, 60) || ': ' || case
           when p_run.target is null or p_run.request_hash is null then 'target and request_hash are required'
           when strpos(p_run.run_id, '/') > 0 then 'a run id must not contain a slash: choose another id'
           when octet_length(p_run.target) > 200 then 'target must have at most 200 bytes'
           else coalesce(heliograph._wrong_url(to_jsonb(p_run.callback_url)),
                         heliograph._wrong_agents(p_run.agents)) end);
end $$;

-- _reject_runs: the rejections of runs by their places; null for those that may start. p_bytes: see _exceeds.
create function heliograph._reject_runs(p_project text, p_runs heliograph.new_run[], p_bytes integer) returns jsonb[]
    language plpgsql stable as $$
declare
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_run heliograph.new_run;
    v_rejection jsonb;
    v_rejections jsonb[] := '{}';
begin
    foreach v_run in array p_runs loop
        v_rejection := coalesce(
            case when p_bytes > v_limits.payload_bytes_max
                 then heliograph._reject_signals(v_run.signals, v_limits) end,
            heliograph._reject_fan_out(jsonb_array_length(v_run.reaction -> 'activations'), v_limits),
            case when jsonb_path_exists(v_run.reaction, '$.activations[*].depth')
                 then heliograph._reject_depth(v_run.reaction -> 'activations', v_limits) end,
            heliograph._reject_drafts(v_run.run_id, coalesce((v_run.fork ->> 'seq')::bigint, 0), v_run.signals),
            nullif(v_run.fork -> 'rejection', 'null'));
        if v_rejection is not null then
            v_rejections[v_run.place] := v_rejection;
        end if;
    end loop;
    return v_rejections;
end $$;
