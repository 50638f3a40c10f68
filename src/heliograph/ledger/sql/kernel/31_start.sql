-- start_runs: start runs. One transaction writes the run, the heads of its agents, its first signals and the turns
--   that these wake.
--   p_runs: [{run_id, target, request_hash, agents: [name], wakes_on_results, callback_url, signals: [draft],
--   reaction, fork, recording}]; reaction: see _commit_reactions. recording: {body, name, tags}, see _recording_of.
--   wakes_on_results: an agent subscribes to tool:result.
--   fork: {run_id, seq, activations, turns: [{turn_id, origin}], repeats_failed}: the log begins with that of another
--   run up to position seq, which is not copied; the signals follow it, and a cause {"seq": n} may be in it.
--   activations: the number of turns that it activated. turns: the turn turn_id starts the turn origin again, and has
--   the results of its calls, see _calls_before.
--   Returns [{run_id, outcome, targets}] in the order of p_runs. 'started'. 'duplicate': a run with the same request
--   exists, or existed before it was pruned; nothing changes. 'conflict': another request has this run id. 'rejected'
--   with code and message: payload_too_large, fan_out, recursion_depth_exceeded, invalid_signal, and those of a fork,
--   see _reject_fork. targets: the workers to notify, for the whole call.
--   raises: see _enter; 22023 for an invalid run, agent, turn or context; 23514 for a reaction that the tables reject,
--           23503 for one that wakes an agent which the run lacks, 23505 for one with a turn id that is taken
--   locks:  the runs that are forked and their turns, against prune; the new runs in ascending id; no other
--           transaction can see their heads yet
create function heliograph.start_runs(p_project text, p_runs jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_runs text[] := array(select r ->> 'run_id' from jsonb_array_elements(p_runs) r);
    v_bytes integer;
    v_places integer[];
    v_new integer[];
    v_known integer[];  -- runs that existed before
    v_woken text[] := '{}';
    v_parts jsonb := '{}';  -- {place: part of its answer} of the runs that are not new
begin
    v_bytes := heliograph._check_json(p_runs);
    perform heliograph._check_runs(p_runs);
    if jsonb_path_exists(p_runs, '$[*].fork ? (@ != null)') then
        p_runs := heliograph._with_origins(p_project, p_runs);
    end if;
    for v_places in select places from heliograph._rounds(v_runs) loop
        with item as materialized (
            select n, p_runs -> (n - 1) as item, v_runs[n] as run_id from unnest(v_places) n
        ), judged as materialized (
            select i.*, i.item -> 'reaction' as reaction, i.item ->> 'request_hash' as hash, p.hash as pruned_hash,
                   coalesce(jsonb_array_length(i.item -> 'signals'), 0) as written,
                   coalesce(jsonb_array_length(i.item #> '{reaction,activations}'), 0) as more,
                   coalesce(case when heliograph._exceeds(i.item, v_bytes, v_limits.payload_bytes_max)
                                 then heliograph._reject_signals(i.item -> 'signals', v_limits) end,
                            heliograph._reject_fan_out(jsonb_array_length(i.item #> '{reaction,activations}'),
                                                       v_limits),
                            case when jsonb_path_exists(i.item, '$.reaction.activations[*].depth')
                                 then heliograph._reject_depth(i.item #> '{reaction,activations}', v_limits) end,
                            heliograph._reject_drafts(i.run_id, coalesce((i.item #>> '{fork,seq}')::bigint, 0),
                                                      i.item -> 'signals'),
                            nullif(i.item #> '{fork,rejection}', 'null')) as rejection
              from item i
              left join lateral (select x.hash from heliograph.pruned x
                                  where x.project_id = p_project and x.id = 'run:' || i.run_id offset 0) p on true
        ), begun as (
            insert into heliograph.runs
                (project_id, run_id, target, status, request_hash, state, memory, version, signal_seq, open_turns,
                 activations, wakes_on_results, outcome, ended_at, created_at, updated_at, callback_url, forked_from,
                 forked_seq, recording_name, recording_tags)
            select p_project, run_id, item ->> 'target', coalesce(reaction ->> 'status', 'running'), hash,
                   coalesce(reaction -> 'state', '{}'), coalesce(reaction -> 'memory', '{}'), 1,
                   written + coalesce((item #>> '{fork,seq}')::bigint, 0), more,
                   more + coalesce((item #>> '{fork,activations}')::integer, 0),
                   coalesce((item ->> 'wakes_on_results')::boolean, false), reaction ->> 'outcome',
                   case when reaction ->> 'status' = 'ended' then p_now end, p_now, p_now, item ->> 'callback_url',
                   item #>> '{fork,owner}', (item #>> '{fork,seq}')::bigint, item #>> '{recording,name}',
                   case when item -> 'recording' <> 'null' then
                       case when item -> 'recording' ? 'tags' then heliograph._recording_tags(item) else '{}' end end
              from judged where pruned_hash is null and rejection is null order by run_id
            on conflict do nothing
            returning run_id
        )
        select v_parts || coalesce(jsonb_object_agg(j.n, coalesce(j.rejection, jsonb_build_object('outcome',
                   case when j.pruned_hash = j.hash then 'duplicate' else 'conflict' end)))
                   filter (where j.rejection is not null or j.pruned_hash is not null), '{}'),
               array_agg(j.n order by j.n) filter (where j.is_new),
               array_agg(j.n order by j.n) filter (where not j.is_new and j.rejection is null and j.pruned_hash is null)
          into v_parts, v_new, v_known
          from (select *, run_id = any (array(select b.run_id from begun b)) as is_new from judged) j;
        if v_known is not null then
            v_parts := v_parts || (
                select jsonb_object_agg(n, jsonb_build_object('outcome',
                           case when r.request_hash = p_runs -> (n - 1) ->> 'request_hash' then 'duplicate'
                                else 'conflict' end))
                  from unnest(v_known) n
                  left join lateral (select x.request_hash from heliograph.runs x
                                      where x.project_id = p_project and x.run_id = v_runs[n] offset 0) r on true);
        end if;
        if v_new is not null then
            v_woken := v_woken || heliograph._log_and_activate(p_project, heliograph._items_at(p_runs, v_new),
                                                                   p_now);
            perform heliograph._feed_runs(p_project, array(select v_runs[n] from unnest(v_new) n order by 1));
            if jsonb_path_exists(p_runs, '$[*].callback_url ? (@ != null)') then
                perform heliograph._create_run_callbacks(p_project, e.runs, p_now)  -- of runs that end as they begin
                   from (select array_agg(v_runs[n] order by n) as runs from unnest(v_new) n
                          where p_runs -> (n - 1) #>> '{reaction,status}' = 'ended'
                            and p_runs -> (n - 1) ->> 'callback_url' is not null) e
                  where e.runs is not null;
            end if;
        end if;
    end loop;
    return heliograph._answers(p_project, 'run_id', p_runs, 'started', v_parts, v_woken);
end $$;

-- _check_runs: reject runs that cannot be written, and those with an unknown key.
--   raises: 22023 naming the field
create function heliograph._check_runs(p_runs jsonb) returns void
    language plpgsql immutable as $$
declare
    v_run jsonb;
    v_wrong text;
begin
    perform heliograph._check_reactions('p_runs[]', p_runs,
        '{run_id,target,request_hash,agents,wakes_on_results,callback_url,signals,reaction,fork,recording}');
    for n in 0 .. coalesce(jsonb_array_length(p_runs), 0) - 1 loop
        v_run := p_runs -> n;
        v_wrong := least(v_wrong, coalesce(
            heliograph._wrong_id('a run id', v_run ->> 'run_id'),
            heliograph._wrong_type('p_runs[]', v_run, 'target', 'string'),
            heliograph._wrong_type('p_runs[]', v_run, 'request_hash', 'string'),
            heliograph._wrong_type('p_runs[]', v_run, 'fork', 'object'),
            -- not inlined, so that a run that is no fork costs no call
            case when v_run -> 'fork' <> 'null' then heliograph._wrong_fork('p_runs[].fork', v_run -> 'fork') end,
            'run ' || left(v_run ->> 'run_id', 60) || ': ' || case
               when v_run ->> 'target' is null or v_run ->> 'request_hash' is null
               then 'target and request_hash are required, and are strings'
               when strpos(v_run ->> 'run_id', '/') > 0 then 'a run id must not contain a slash: choose another id'
               when octet_length(v_run ->> 'target') > 200 then 'target must have at most 200 bytes'
               else coalesce(heliograph._wrong_url(v_run -> 'callback_url'),
                             heliograph._wrong_agents(v_run -> 'agents')) end));
    end loop;
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
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

-- _log_and_activate: write the log, the heads and the first turns of new runs. Returns the agents that it
--   woke.
--   raises: see start_runs
--   The caller has created the runs.
create function heliograph._log_and_activate(p_project text, p_runs jsonb, p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_activations jsonb;
    v_lacks_agents boolean;  -- a run does not list an agent that it activates
    v_woken text[] := '{}';
begin
    insert into heliograph.signals (project_id, run_id, seq, count, entries, at, recording)
    select p_project, r ->> 'run_id', 1 + coalesce((r #>> '{fork,seq}')::bigint, 0),
           jsonb_array_length(r -> 'signals'), r -> 'signals', p_now, heliograph._recording_of(r)
      from jsonb_array_elements(p_runs) r
     where jsonb_array_length(r -> 'signals') > 0 order by r ->> 'run_id';
    select jsonb_agg(x.item order by x.run_id, x.n), bool_or(x.item is null)
      into v_activations, v_lacks_agents
      -- offset 0: the sort would otherwise copy the whole run for each of its activations
      from (select case when r -> 'agents' ? (a.item ->> 'agent')
                        then a.item - 'budgets' || jsonb_build_object(
                                 'run_id', r -> 'run_id', 'target', r -> 'target',
                                 'base', coalesce((r #>> '{fork,seq}')::bigint, 0))
                             || heliograph._origin_of_cause(p_project, r, a.item -> 'cause') end as item,
                   r ->> 'run_id' as run_id, a.n
              from jsonb_array_elements(p_runs) r
             cross join lateral jsonb_array_elements(r #> '{reaction,activations}') with ordinality a (item, n)
            offset 0) x;
    if v_lacks_agents then
        raise exception using errcode = '23503', message = (
            select heliograph._no_agent(a.item ->> 'turn_id', a.item ->> 'agent', r ->> 'run_id')
              from jsonb_array_elements(p_runs) r
             cross join lateral jsonb_array_elements(r #> '{reaction,activations}') with ordinality a (item, n)
             where not coalesce(r -> 'agents' ? (a.item ->> 'agent'), false) order by r ->> 'run_id', a.n limit 1);
    end if;
    if v_activations is not null then
        v_woken := heliograph._enqueue(p_project, v_activations, p_now);
    end if;
    if jsonb_path_exists(p_runs, '$[*].reaction.stops ? (@ != null)') then
        perform heliograph._stop_open_turns(p_project, (
            select jsonb_agg(r #> '{reaction,stops}' || jsonb_build_object('run_id', r -> 'run_id')
                             order by r ->> 'run_id')
              from jsonb_array_elements(p_runs) r where r #>> '{reaction,stops}' is not null), p_now);
    end if;
    if jsonb_path_exists(p_runs, '$[*].fork.turns[*].turn_id') then
        perform heliograph._copy_calls(p_project, p_runs, p_now);
    end if;
    insert into heliograph.agent_state_head (project_id, agent_id, run_id, agent_name, target, moved_at)
    select p_project, (r ->> 'run_id') || '/' || name, r ->> 'run_id', name, r ->> 'target', p_now
      from jsonb_array_elements(p_runs) r
     cross join lateral jsonb_array_elements_text(r -> 'agents') a (name)
     where (select h.agent_id from heliograph.agent_state_head h  -- an agent with a turn has a head
             where h.project_id = p_project and h.agent_id = (r ->> 'run_id') || '/' || name) is null
     order by r ->> 'run_id', name
    on conflict do nothing;  -- a name that is repeated
    return v_woken;
end $$;
