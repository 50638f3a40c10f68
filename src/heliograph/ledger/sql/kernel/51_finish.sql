-- finish: end running turns: the owner commits the deliverable, the last signals, the run's new state and the turns
--   that these signals wake (K1, K24).
--   p_items: {agent_id, turn_id, epoch, outcome, content, version, signals: [draft], reaction, recording, follows}, as
--   one array for each key. reaction: see _commit_reactions. version: that of the run from which it was computed.
--   recording: see _recording_of. follows: the turn whose ending, earlier in this call, makes that run; unless that one
--   is accepted, this one is a conflict (K24d).
--   Returns rows {turn_id, outcome, targets, woken, run, code, message} in the order of the items. 'ok'. 'conflict':
--   the run has changed since the reaction was computed; nothing is written, and run is the new view to compute the
--   reaction from. 'duplicate': this epoch has delivered before; its reply was lost. 'stale': another worker owns the
--   turn. 'rejected' with code and message; nothing is written: payload_too_large, fan_out, queue_full, result_fields,
--   invalid_content, invalid_signal; id_conflict, if the id of a turn to wake is taken. targets: the workers to notify,
--   for the whole call. woken: in the first row, the agents that the call woke.
--   raises: see _enter; 22023 for arrays of the wrong shape, no content, an unknown outcome, an invalid turn or
--           context; 23514 for a run that may not end yet; 23505 for the id of a turn that another caller creates at
--           the same moment
--   locks:  the heads of the turns and of the agents activated, then the runs
create function heliograph.finish(
    p_project text, p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_outcome text[], p_content jsonb[],
    p_version bigint[], p_signals jsonb[], p_reaction jsonb[], p_recording text[], p_follows text[], p_now timestamptz
) returns table (turn_id text, outcome text, targets text[], woken text[], run jsonb, code text, message text)
    language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_runs constant text[] := heliograph._runs_of(p_agent_id);
    v_bytes integer;
    v_plan record;  -- see _following
    v_places integer[];
    v_has_next boolean;  -- a turn waits for one of the agents
    v_item record;
    v_verdict jsonb;
    v_verdicts jsonb[];  -- of the items that are not accepted
    v_ended integer[];  -- the places of the items of a round that are accepted,
    v_after integer[];  -- and of those that follow one that is not
    v_failed text[];  -- the runs of items that are not
    v_settled bigint[];  -- see _commit_reactions
    v_turns_ended text[] := '{}'; v_woken text[] := '{}';
begin
    perform heliograph._check_shapes(array[heliograph._shape(p_agent_id), heliograph._shape(p_turn_id),
        heliograph._shape(p_epoch), heliograph._shape(p_outcome), heliograph._shape(p_content),
        heliograph._shape(p_version), heliograph._shape(p_signals), heliograph._shape(p_reaction),
        heliograph._shape(p_recording), heliograph._shape(p_follows)]);
    v_bytes := heliograph._check_endings(p_content, p_signals, p_reaction, p_recording);
    p_signals := array_replace(p_signals, 'null', null);
    perform heliograph._lock_heads(p_project, p_agent_id || heliograph._activated(v_runs, p_reaction));
    perform heliograph._lock_runs(p_project, v_runs);
    v_plan := heliograph._following(v_runs, p_agent_id, p_turn_id, p_follows, p_signals, p_reaction);
    for v_round in 1 .. cardinality(v_runs) loop
        v_places := array_positions(v_plan.rounds, v_round);
        exit when v_places = '{}';
        v_has_next := false;
        v_ended := '{}';
        v_after := '{}';
        v_failed := '{}';
        for v_item in select * from heliograph._read_endings(p_project, v_places, v_runs, p_agent_id, p_turn_id,
                                                             p_epoch, v_plan.steps, v_plan.ahead) e order by e.n loop
            v_has_next := v_has_next or v_item.has_next;
            if v_item.is_owned is null then
                v_verdict := heliograph._lost_ending(p_project, p_turn_id[v_item.n], p_epoch[v_item.n]);
            elsif v_item.version is distinct from p_version[v_item.n]  -- a missing one never matches
                  or jsonb_typeof(p_reaction[v_item.n]) is distinct from 'object'
                  or p_follows[v_item.n] is not null and v_item.step = 0
                     and not p_follows[v_item.n] = any (v_turns_ended) then
                v_verdict := heliograph._conflict(p_project, v_runs[v_item.n]);
            else
                v_verdict := heliograph._reject_ending(
                    p_project, v_runs[v_item.n], p_turn_id[v_item.n], p_outcome[v_item.n], p_content[v_item.n],
                    p_signals[v_item.n], p_reaction[v_item.n] -> 'activations', v_item.base, v_item.result_fields,
                    v_bytes, v_limits);
            end if;
            if v_item.step > 0 and v_runs[v_item.n] = any (v_failed) and v_item.is_owned then
                v_after := v_after || v_item.n;  -- a conflict with the run that this round makes
            elsif v_verdict is null then
                v_ended := v_ended || v_item.n;
            else
                v_verdicts[v_item.n] := v_verdict;
                v_failed := v_failed || v_runs[v_item.n];
            end if;
        end loop;
        if v_ended <> '{}' then
            perform heliograph._terminal(p_project, v_ended, p_agent_id, p_turn_id, p_epoch, p_outcome, p_content, null,
                                         v_bytes, v_limits.card_bytes_max, p_now);
            if v_has_next then
                v_woken := heliograph._dispatch_next(
                    p_project, array(select p_agent_id[n] from unnest(v_ended) n), p_now) || v_woken;
            end if;
            if v_plan.steps is not null then
                v_turns_ended := v_turns_ended || array(select p_turn_id[n] from unnest(v_ended) n);
                select l.places, l.settled into v_ended, v_settled from heliograph._log_followed(
                    p_project, v_ended, v_runs, p_turn_id, p_signals, p_reaction, p_recording, p_now) l;
            end if;
            v_woken := v_woken || heliograph._commit_reactions(p_project, v_ended, v_runs, p_turn_id, p_signals,
                                                               p_reaction, p_recording, v_settled, 1, p_now);
        end if;
        for n in 1 .. cardinality(v_after) loop
            v_verdicts[v_after[n]] := heliograph._conflict(p_project, v_runs[v_after[n]]);
        end loop;
    end loop;
    targets := heliograph._queues(p_project, v_woken);
    return query
    select p_turn_id[n], coalesce(v_verdicts[n] ->> 'outcome', 'ok'), targets,
           case when n = 1 and v_woken <> '{}' then array(select distinct a from unnest(v_woken) a order by a) end,
           v_verdicts[n] -> 'run', v_verdicts[n] ->> 'code', v_verdicts[n] ->> 'message'
      from generate_subscripts(p_turn_id, 1) n order by n;
end $$;

-- _check_endings: check the JSON columns and the recordings of endings. Returns the bytes of the JSON, see _exceeds.
--   raises: see _check_columns, _check_reactions and _check_recording_texts
create function heliograph._check_endings(
    p_content jsonb[], p_signals jsonb[], p_reaction jsonb[], p_recording text[]
) returns integer language plpgsql immutable as $$
declare
    v_bytes constant integer := heliograph._check_columns(p_content || p_signals || p_reaction);
begin
    perform heliograph._check_reactions(p_reaction);
    perform heliograph._check_recording_texts(p_recording);
    return v_bytes;
end $$;

-- _read_endings: what decides about the endings of a round, with their places. is_owned: null if the caller does not
--   own the turn. version: of the run, after the endings before it in its round. base: the position of the run's log
--   after which its signals are written. result_fields: of the turn. has_next: another turn waits for the agent.
--   p_steps, p_ahead: see _following.
--   The caller holds the heads and the runs.
create function heliograph._read_endings(
    p_project text, p_places integer[], p_runs text[], p_agent_id text[], p_turn_id text[], p_epoch bigint[],
    p_steps integer[], p_ahead bigint[]
) returns table (
    n integer, step integer, is_owned boolean, version bigint, base bigint, result_fields jsonb, has_next boolean
) language sql stable as $$
    select p.n, s.step, h.is_owned, r.version + s.step, r.signal_seq + coalesce(p_ahead[p.n], 0), t.result_fields,
           (select true from heliograph.agent_turns q
             where q.project_id = p_project and q.agent_id = p_agent_id[p.n] and q.state = 'queued'
             order by q.queue_seq limit 1) is not null
      from unnest(p_places) p (n)
     cross join lateral (select coalesce(p_steps[p.n], 0) as step) s
      left join lateral (
           select true as is_owned from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = p_agent_id[p.n] and x.status = 'running'
              and x.active_agent_turn_id = p_turn_id[p.n] and x.turn_epoch = p_epoch[p.n] offset 0) h on true
      left join lateral (
           select x.version, x.signal_seq from heliograph.runs x
            where x.project_id = p_project and x.run_id = p_runs[p.n] offset 0) r on true
      left join lateral (
           select x.result_fields from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = p_turn_id[p.n] offset 0) t on true
$$;

-- _lost_ending: the verdict of an ending whose caller does not own the turn: 'stale', or 'duplicate' if the caller has
--   ended the turn before.
create function heliograph._lost_ending(p_project text, p_turn_id text, p_epoch bigint) returns jsonb
    language sql stable as $$
    select jsonb_build_object('outcome', case when exists (
               select from heliograph.cards c
                where c.project_id = p_project and c.card_id = heliograph._deliverable_id(p_turn_id)
                  and c.turn_epoch = p_epoch) then 'duplicate' else 'stale' end)
$$;

-- _conflict: the verdict of a reaction that was computed from another version of its run, with the run as it is.
create function heliograph._conflict(p_project text, p_run_id text) returns jsonb
    language sql stable as $$
    select jsonb_build_object('outcome', 'conflict', 'run', heliograph._run_view(r)) from heliograph.runs r
     where r.project_id = p_project and r.run_id = p_run_id
$$;

-- _reject_ending: null, or the rejection of an ending of an owned turn. p_base: the position of the log after which its
--   signals are written. p_fields: the result_fields of the turn. p_bytes: see _exceeds.
--   raises: 22023 for no content, or an unknown outcome
--   The caller holds the heads and the run.
create function heliograph._reject_ending(
    p_project text, p_run_id text, p_turn_id text, p_outcome text, p_content jsonb, p_signals jsonb,
    p_activations jsonb, p_base bigint, p_fields jsonb, p_bytes integer, p_limits heliograph.project_limits
) returns jsonb language plpgsql stable as $$
declare
    v_rejection jsonb := heliograph._reject_deliverable(p_outcome, p_content);
begin
    if v_rejection is null and heliograph._exceeds(p_signals, p_bytes, p_limits.payload_bytes_max) then
        v_rejection := heliograph._reject_signals(p_signals, p_limits);
    end if;
    if v_rejection is null and heliograph._exceeds(p_content, p_bytes, p_limits.blob_bytes_max) then
        v_rejection := heliograph._reject_content(p_content, p_limits);
    end if;
    if v_rejection is null and p_fields is not null then
        v_rejection := heliograph._reject_fields(p_turn_id, p_outcome, p_content, p_fields);
    end if;
    if v_rejection is null and p_activations -> 0 is not null then
        v_rejection := coalesce(heliograph._reject_activations(p_project, p_run_id, p_activations, p_limits),
                                heliograph._reject_taken(p_project, p_activations));
    end if;
    return coalesce(v_rejection, heliograph._reject_drafts(p_run_id, p_base, p_signals));
end $$;

-- _reject_deliverable: null, or the rejection of invalid content: a deliverable has text or fields (L0-83).
--   raises: 22023 for no content, or an unknown outcome
create function heliograph._reject_deliverable(p_outcome text, p_content jsonb) returns jsonb
    language sql as $$
    select case when jsonb_typeof(p_content -> 'text') = 'string' or jsonb_typeof(p_content -> 'fields') = 'array' then
                     case when not coalesce(p_outcome in ('success', 'partial', 'failed', 'timeout', 'canceled'),
                                            false)
                          then heliograph._invalid('outcome must be success, partial, failed, timeout or canceled') end
                when coalesce(p_content, 'null') = 'null'
                then heliograph._invalid('a deliverable must have content')
                else heliograph._rejection('invalid_content',
                         'the content of a deliverable must have text, a string, or fields, a list') end
$$;

-- _reject_taken: null, or the rejection of an ending that wakes a turn with a taken id, or two turns with one id. The
--   insert finds an id that another caller takes at the same moment.
create function heliograph._reject_taken(p_project text, p_activations jsonb) returns jsonb
    language sql stable as $$
    select heliograph._rejection('id_conflict', format('turn %s exists', w.turn_id))
      from (select a ->> 'turn_id' as turn_id, count(*) as more
            from jsonb_array_elements(p_activations) a group by 1) w
      left join lateral (
           select x.agent_turn_id from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = w.turn_id offset 0) taken on true
     where w.turn_id is not null and (w.more > 1 or taken.agent_turn_id is not null)
     order by w.turn_id limit 1
$$;

-- _reject_fields: null, or the rejection of a successful deliverable without all required fields (L0-84, L0-85).
create function heliograph._reject_fields(p_turn_id text, p_outcome text, p_content jsonb, p_fields jsonb) returns jsonb
    language sql immutable as $$
    select case when p_outcome = 'success' then (
        select heliograph._rejection('result_fields', format(
                   'the deliverable of turn %s lacks the required fields %s: '
                   'add them, or end the turn as partial or failed', p_turn_id,
                   string_agg(coalesce(f ->> 'name', format('number %s of result_fields, which has no name', n)),
                              ', ' order by n)))
          from jsonb_array_elements(p_fields) with ordinality w (f, n)
         where coalesce(heliograph._as_boolean(f -> 'required'), true)
           and not jsonb_path_exists(p_content, '$.fields[*].name ? (@ == $name)',
                                     jsonb_build_object('name', f -> 'name'))
        having count(*) > 0) end
$$;
