-- start_runs: start runs. One transaction writes the run, the heads of its agents, its first signals and the turns
--   that these wake.
--   p_items: {run_id, target, request_hash, agents: [name], wakes_on_results, callback_url, signals: [draft],
--   reaction, fork, recording}, as one array for each key; reaction: see _commit_reactions. recording: {body, name,
--   tags}, see _recording_of. wakes_on_results: an agent subscribes to tool:result.
--   fork: {run_id, seq, activations, turns: [{turn_id, origin}], repeats_failed}: the log begins with that of another
--   run up to position seq, which is not copied; the signals follow it, and a cause {"seq": n} may be in it.
--   activations: the number of turns that it activated. turns: the turn turn_id starts the turn origin again, and has
--   the results of its calls, see _calls_before.
--   Returns rows {run_id, outcome, code, message, targets, woken} in the order of the items. 'started'. 'duplicate': a
--   run with the same request exists, or existed before it was pruned; nothing changes. 'conflict': another request has
--   this run id. 'rejected' with code and message: payload_too_large, fan_out, recursion_depth_exceeded,
--   invalid_signal, and those of a fork, see _reject_fork. targets: the workers to notify, for the whole call. woken:
--   in the first row, the agents that the call woke.
--   raises: see _enter; 22023 for arrays of the wrong shape, and for an invalid run, agent, turn, context or
--           recording; 23514 for a reaction that the tables reject, or for the name of a recording without 1 to 200
--           bytes; 23503 for a reaction that wakes an agent which the run lacks, 23505 for one with a turn id that is
--           taken, or for a value that a unique index of an operator has already
--   locks:  the runs that are forked and their turns, against prune; the new runs in ascending id; no other
--           transaction can see their heads yet
create function heliograph.start_runs(
    p_project text, p_run_id text[], p_target text[], p_request_hash text[], p_agents jsonb[],
    p_wakes_on_results boolean[], p_callback_url text[], p_signals jsonb[], p_reaction jsonb[], p_fork jsonb[],
    p_recording jsonb[], p_now timestamptz
) returns table (run_id text, outcome text, code text, message text, targets text[], woken text[])
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_bytes integer;
    v_runs heliograph.new_run[];
    v_new heliograph.new_run[];
    v_answers jsonb[];  -- of the runs that are not new, by their places
    v_turns heliograph.new_turn[];
    v_epochs bigint[];  -- of the turns that are dispatched
    v_targets text[];
    v_woken text[];
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_run_id), heliograph._shape(p_target), heliograph._shape(p_request_hash),
        heliograph._shape(p_agents), heliograph._shape(p_wakes_on_results), heliograph._shape(p_callback_url),
        heliograph._shape(p_signals), heliograph._shape(p_reaction), heliograph._shape(p_fork),
        heliograph._shape(p_recording)]);
    v_bytes := heliograph._check_columns(p_agents || p_signals || p_reaction || p_fork || p_recording);
    v_runs := array(
        select (u.place, u.id, u.target, u.request_hash, u.agents, u.wakes_on_results, u.callback_url, u.signals,
                u.reaction, nullif(u.fork, 'null'), u.recording)::heliograph.new_run
          from unnest(p_run_id, p_target, p_request_hash, p_agents, p_wakes_on_results, p_callback_url, p_signals,
                      p_reaction, p_fork, p_recording) with ordinality
               u (id, target, request_hash, agents, wakes_on_results, callback_url, signals, reaction, fork, recording,
                  place)
         order by u.id, u.place);
    perform heliograph._check_runs(v_runs);
    if array_remove(array_remove(p_fork, 'null'), null) <> '{}' then
        v_runs := heliograph._with_origins(p_project, v_runs);
    end if;
    v_answers := heliograph._reject_runs(p_project, v_runs, v_bytes);
    v_new := heliograph._insert_runs(p_project, v_runs, v_answers, p_now);
    if cardinality(v_new) < cardinality(v_runs) then
        v_answers := heliograph._answer_known(p_project, v_runs, v_new, v_answers);
    end if;
    v_turns := heliograph._log_starts(p_project, v_new, p_now);
    v_epochs := heliograph._first_epochs(v_turns);
    v_woken := heliograph._insert_heads(p_project, v_turns, v_epochs, v_new, p_now);
    perform heliograph._insert_turns(p_project, v_turns, v_epochs, p_now);
    perform heliograph._follow_starts(p_project, v_new, p_now);
    v_targets := array(select distinct heliograph._queue_name(t.target, t.pool)
                         from rows from (unnest(v_epochs), unnest(v_turns)) t (epoch) where t.epoch is not null
                        order by 1);
    return query
    select r.run_id, coalesce(r.answer ->> 'outcome', 'started'), r.answer ->> 'code', r.answer ->> 'message',
           v_targets, case when r.n = 1 and v_woken <> '{}' then v_woken end
      from unnest(p_run_id, v_answers) with ordinality r (run_id, answer, n);
end $$;

-- _insert_runs: write the rows of runs that are neither rejected nor known. Returns these runs.
--   It inserts without `on conflict`, which writes a further record to the log for each row. If another caller creates
--   one of the runs at the same moment, nothing is written, and the next attempt sees that run.
--   raises: 40001 for such a run in a transaction that does not see it; 23505 for a unique index of an operator
--   locks:  the new runs in ascending id
create function heliograph._insert_runs(
    p_project text, p_runs heliograph.new_run[], p_rejections jsonb[], p_now timestamptz
) returns heliograph.new_run[] language plpgsql as $$
declare
    v_new heliograph.new_run[];
    v_constraint text;
begin
    loop
        v_new := array(
            select distinct on (r.run_id) r from unnest(p_runs) r
             where p_rejections[r.place] is null
               and not exists (select from heliograph.pruned x
                                where x.project_id = p_project and x.id = 'run:' || r.run_id offset 0)
               and not exists (select from heliograph.runs x
                                where x.project_id = p_project and x.run_id = r.run_id offset 0)
             order by r.run_id, r.place);
        begin
            perform heliograph._write_runs(p_project, v_new, p_now);
            return v_new;
        exception when unique_violation then
            get stacked diagnostics v_constraint = constraint_name;
            if v_constraint is distinct from 'runs_pkey' then
                raise;  -- of an index that an operator has created: no attempt would succeed
            elsif current_setting('transaction_isolation') <> 'read committed' then
                raise exception using errcode = '40001', message = 'another transaction has created one of these runs';
            end if;
        end;
    end loop;
end $$;

-- _write_runs: write the rows of new runs.
--   raises: 23505 for a run that exists
--   locks:  the runs in their order
create function heliograph._write_runs(p_project text, p_runs heliograph.new_run[], p_now timestamptz) returns void
    language plpgsql as $$
begin
    insert into heliograph.runs
        (project_id, run_id, target, status, request_hash, state, memory, version, signal_seq, open_turns,
         activations, wakes_on_results, outcome, ended_at, created_at, updated_at, callback_url, forked_from,
         forked_seq, recording_name, recording_tags)
    select p_project, r.run_id, r.target, coalesce(r.reaction ->> 'status', 'running'),
           heliograph._request_key(r.request_hash),
           coalesce(r.reaction -> 'state', '{}'), coalesce(r.reaction -> 'memory', '{}'), 1,
           coalesce(jsonb_array_length(r.signals), 0) + coalesce((r.fork ->> 'seq')::bigint, 0),
           coalesce(jsonb_array_length(r.reaction -> 'activations'), 0),
           coalesce(jsonb_array_length(r.reaction -> 'activations'), 0)
           + coalesce((r.fork ->> 'activations')::integer, 0),
           coalesce(r.wakes_on_results, false), r.reaction ->> 'outcome',
           case when r.reaction ->> 'status' = 'ended' then p_now end, p_now, p_now, r.callback_url,
           r.fork ->> 'owner', (r.fork ->> 'seq')::bigint, r.recording ->> 'name',
           case when r.recording ? 'tags' then heliograph._recording_tags(r.recording -> 'tags')
                when r.recording <> 'null' then '{}' end
      from unnest(p_runs) r;
end $$;

-- _request_key: 132 bits that a run keeps of its request's hash. Runs of earlier versions have the whole hash.
create function heliograph._request_key(p_hash text) returns text
    language sql stable as $$
    select left(encode(sha256(convert_to(p_hash, 'UTF8')), 'base64'), 22)
$$;

-- _answer_known: the answers of the runs that are not among the new ones, by their places.
create function heliograph._answer_known(
    p_project text, p_runs heliograph.new_run[], p_new heliograph.new_run[], p_rejections jsonb[]
) returns jsonb[] language sql stable as $$
    select array_agg(case when r.is_new then null else coalesce(r.rejection, jsonb_build_object(
                         'outcome', case when r.known in (heliograph._request_key(r.hash), r.hash)
                                         then 'duplicate' else 'conflict' end)) end
                     order by r.place)
      from (select i.place, p_rejections[i.place] as rejection, i.request_hash as hash,
                   i.place in (select n.place from unnest(p_new) n) as is_new,
                   coalesce((select x.request_hash from heliograph.runs x
                              where x.project_id = p_project and x.run_id = i.run_id),
                            (select x.hash from heliograph.pruned x
                              where x.project_id = p_project and x.id = 'run:' || i.run_id)) as known
              from unnest(p_runs) i) r
$$;

-- _log_starts: write the signals of new runs. Returns the turns that they activate.
--   raises: see start_runs
--   The caller has created the runs.
create function heliograph._log_starts(p_project text, p_runs heliograph.new_run[], p_now timestamptz)
    returns heliograph.new_turn[] language plpgsql as $$
declare
    v_turns heliograph.new_turn[];
begin
    insert into heliograph.signals (project_id, run_id, seq, count, entries, at, recording)
    select p_project, r.run_id, 1 + coalesce((r.fork ->> 'seq')::bigint, 0), jsonb_array_length(r.signals), r.signals,
           p_now, r.recording ->> 'body'
      from unnest(p_runs) r where jsonb_array_length(r.signals) > 0;
    perform heliograph._check_turns(p_project, p_runs);
    v_turns := array(
        select t from unnest(p_runs) r
         cross join lateral heliograph._new_turns(r.run_id, r.target, coalesce((r.fork ->> 'seq')::bigint, 0),
                                                  r.reaction -> 'activations') t);
    return v_turns;
end $$;

-- _check_turns: check the turns that new runs activate, and create their budgets.
--   raises: see start_runs
--   locks:  the contexts against prune
--   The caller has created the runs.
create function heliograph._check_turns(p_project text, p_runs heliograph.new_run[]) returns void
    language plpgsql as $$
declare
    v_run heliograph.new_run;
    v_activations jsonb;
begin
    foreach v_run in array p_runs loop
        v_activations := v_run.reaction -> 'activations';
        for n in 0 .. coalesce(jsonb_array_length(v_activations), 0) - 1 loop
            if not coalesce(v_run.agents ? (v_activations -> n ->> 'agent'), false) then
                raise exception using errcode = '23503', message = heliograph._no_agent(
                    v_activations -> n ->> 'turn_id', v_activations -> n ->> 'agent', v_run.run_id);
            end if;
            if heliograph._wrong_turn(v_activations -> n) is not null then
                raise exception using errcode = '22023', message = heliograph._wrong_turn(v_activations -> n);
            end if;
        end loop;
        if v_activations @? '$[*] ? (@.context_box_id != null || @.budget != null)' then
            perform heliograph._check_options(p_project, v_activations);
        end if;
    end loop;
end $$;

-- _first_epochs: the epochs of new turns of agents that are new, too: the first turn of each agent is dispatched.
create function heliograph._first_epochs(p_turns heliograph.new_turn[]) returns bigint[]
    language plpgsql immutable as $$
begin
    if cardinality(p_turns) = 1 then
        return '{1}';  -- the usual case, without a statement
    end if;
    return array(
        select case when row_number() over (partition by t.agent_id order by t.n) = 1 then 1 end
          from rows from (generate_series(1, cardinality(p_turns)), unnest(p_turns)) t (n) order by t.n);
end $$;

-- _follow_starts: write what else new runs need: their place in the feed, the stops and the earlier calls of their
--   turns, and the callbacks of those that have ended already.
--   The caller has created the runs and their turns.
create function heliograph._follow_starts(p_project text, p_runs heliograph.new_run[], p_now timestamptz) returns void
    language plpgsql as $$
declare
    v_run heliograph.new_run;
begin
    if exists (select from heliograph.subscriptions where project_id = p_project) then  -- usually there is none
        perform heliograph._feed_runs(p_project, array(select r.run_id from unnest(p_runs) r));
    end if;
    foreach v_run in array p_runs loop
        if v_run.reaction ->> 'stops' is not null then
            perform heliograph._stop_open_turns(p_project, jsonb_build_array(
                v_run.reaction -> 'stops' || jsonb_build_object('run_id', v_run.run_id)), p_now);
        end if;
        if v_run.fork is not null then
            perform heliograph._copy_calls(p_project, v_run, p_now);
        end if;
        if v_run.callback_url is not null and v_run.reaction ->> 'status' = 'ended' then
            perform heliograph._create_run_callbacks(p_project, array[v_run.run_id], p_now);
        end if;
    end loop;
end $$;
