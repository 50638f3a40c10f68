-- Suspending: a running turn releases its worker until its calls have results (K3, K16, L0-51 to L0-55).

-- suspend: write the calls of running turns, and suspend the turns. Commands leave from the outbox after this commit,
--   so no result comes before its wait exists.
--   p_items: [{agent_id, turn_id, epoch, phase, signals_emitted, cards, signals, join, seen, terminates, recording,
--   calls: [{call_id, step_id, tool, kind, effect, timeout_seconds, token, after_execution, may_override,
--   fails_fast, taint,
--   is_trusted, circuit_breaker: {type, target, failure_threshold, success_threshold, timeout_seconds,
--   half_open_max_calls}, rates: [{kind, name, count, seconds, amount}], command: {subject, body, pool, priority},
--   child: {agent, instance, turn_id, activation, cause, priority, pool, max_attempts, ttl_seconds, context_box_id,
--   result_fields, budget, callback_url}}]}].
--   signals_emitted, cards, signals: as in append. join: with 'all' the turn resumes when none of its calls is open,
--   earlier ones included; with 'each' as soon as one is resolved. recording: see _recording_of. seen: the highest
--   resolved_position that the owner has received from claim or with 'resolved'; without it the inbox decides which
--   results the owner has received.
--   terminates: a graceful stop lets a worker run the terminate phase of the turn; without it the turn ends at once.
--   kind: programs outside report the calls of kind tool and human. child: a turn of another agent, or of an instance
--   of one, whose cause and activation are indexes of signals. timer: resolved as success at its deadline.
--   fails_fast: the first call of a step that fails cancels the other calls of the step that have this mark. taint,
--   is_trusted, circuit_breaker, rates: as in begin_call. A command leaves, and a child begins, once the call has its
--   tokens. timeout_seconds null: no deadline. token: the capability to
--   report; the table keeps its hash, and the command keeps it while the call is open. A call id that the turn has
--   already remains as it is, resolved or not.
--   Returns [{turn_id, outcome, first_seq, targets, circuits}] in the order of p_items. circuits: {call id: {type,
--   target, generation, is_trial}} of an item that has a call with a circuit_breaker. 'suspended'. 'resolved', with
--   "waits" as in claim: everything is written, but the turn keeps running, because early reports resolved its last
--   calls, or because a streaming join has a result that its owner has not received. 'stopped': a graceful stop was
--   pending and has ended the turn. 'stopping', with stop as in renew: a graceful stop is pending, and the turn
--   terminates; nothing is written, and its owner runs its terminate phase. 'stale'. 'rejected'
--   with code and message; nothing is written: too_many_waits, too_many_cards,
--   payload_too_large, fan_out, recursion_depth_exceeded, queue_full, unknown_agent, delegation_cycle,
--   run_stopping, id_conflict, unknown_box, box_in_use, reserved_name, invalid_signal; BUDGET_EXCEEDED, if a budget,
--   which the answer names, lacks the tool calls; CIRCUIT_OPEN with circuit and calls: {call id: {message, circuit}} of
--   the calls that their breakers do not admit; RATE_LIMITED with rate, as in begin_call, and calls: {call id:
--   {message, rate}}. Each call of kind tool counts as one, from the moment it is made.
--   raises: see _enter; 22023 for an invalid call, card or phase; 23514 for a card of kind task.deliverable; 23505 for
--           the id of another card, or of a turn that another caller creates at the same moment; 40001 if the head of a
--           child's instance has just been created: try again
--   locks:  the heads of the turns and of the children's agents, then the runs, then the buckets; the children's
--           contexts against prune
create function heliograph.suspend(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_agents text[] := array(select i ->> 'agent_id' from jsonb_array_elements(p_items) i);
    v_runs text[] := array(select heliograph._run_of(a) from unnest(v_agents) a);
    v_children text[] := case when jsonb_path_exists(p_items, '$[*].calls[*] ? (@.kind == "child")')
                              then heliograph._child_agents(p_items) else '{}' end;
    v_bytes integer;
    v_places integer[];
    v_ok integer[];
    v_stopping text[];
    v_is_early boolean;
    v_spends boolean;
    v_has_circuits constant boolean := heliograph._has_circuits(p_items);
    v_has_rates constant boolean := heliograph._has_rates(p_items);
    v_admitted jsonb;
    v_agent text;
    v_part jsonb;
    v_woken text[] := '{}';
    v_parts jsonb := '{}';  -- {place: part of its answer}
    v_answer jsonb;
begin
    v_bytes := heliograph._check_json(p_items);
    perform heliograph._check_suspend(p_items);
    perform heliograph._lock_heads(p_project, v_agents || v_children);
    perform heliograph._lock_runs(p_project, v_runs);
    if cardinality(v_children) > 0 then
        perform heliograph._lock_new_heads(p_project, v_children);
    end if;
    if v_has_rates then
        perform heliograph._lock_rates(p_project, p_items);
    end if;
    for v_places in select places from heliograph._rounds(v_runs) order by places loop
        with judged as materialized (
            select s.n, s.is_early, s.budgets is not null as spends, case  -- the verdict of an accepted item is null
                   when not s.is_owned then '{"outcome": "stale"}'
                   when s.stop is not null and (s.item ->> 'terminates')::boolean
                   then jsonb '{"outcome": "stopping"}' || s.stop
                   when s.is_stopping then '{"outcome": "stopped"}'
                   else coalesce(
                       -- each check costs more than everything else, so it runs only where it may find something
                       case when s.item -> 'signals' is not null then heliograph._reject_names(s.item) end,
                       case when s.card_count + s.cards > v_limits.cards_max
                              or heliograph._exceeds(s.item, v_bytes, least(v_limits.payload_bytes_max,
                                                                            v_limits.blob_bytes_max))
                            then heliograph._reject_cards_and_signals(p_project, s.item, v_bytes, v_limits) end,
                       (select d.rejection from heliograph._reject_own_drafts(p_project, s.item) d),
                       case when s.known + s.calls > v_limits.waits_max
                              or heliograph._exceeds(s.item, v_bytes, v_limits.result_bytes_max)
                            then heliograph._reject_calls(p_project, s.item, v_limits) end,
                       case when cardinality(v_children) > 0
                            then coalesce(heliograph._reject_children(p_project, v_runs[s.n], s.item, v_limits),
                                          heliograph._reject_duplicates(p_project, p_items, s.n)) end,
                       case when s.budgets is not null
                            then heliograph._reject_commands(p_project, s.item, s.budgets) end) end as verdict
              from heliograph._read_suspend(p_project, p_items, v_places, v_agents) s
        )
        select v_parts || coalesce(jsonb_object_agg(n, verdict) filter (where verdict is not null), '{}'),
               array_agg(n order by n) filter (where verdict is null),
               array_agg(v_agents[n] order by n) filter (where verdict ->> 'outcome' = 'stopped'), bool_or(is_early),
               bool_or(spends)
          into v_parts, v_ok, v_stopping, v_is_early, v_spends
          from judged;
        for v_agent in select a from unnest(v_stopping) a loop
            v_woken := v_woken || heliograph._end_if_stopping(p_project, v_agent, p_now);
        end loop;
        if v_ok is not null and (v_has_circuits or v_has_rates) then
            v_admitted := heliograph._admit_items(p_project, p_items, v_ok, p_now);
            p_items := v_admitted -> 'items';
            v_ok := array(select n::integer from jsonb_array_elements_text(v_admitted -> 'places') n);
            v_parts := v_parts || (v_admitted -> 'parts');
        end if;
        if cardinality(v_ok) > 0 then
            if v_spends then
                perform heliograph._spend_commands(p_project, heliograph._items_at(p_items, v_ok));
            end if;
            v_part := heliograph._suspend(p_project, heliograph._items_at(p_items, v_ok), v_ok,
                                          cardinality(v_children) > 0, v_is_early, v_bytes, v_limits, p_now);
            v_parts := v_parts || (v_part -> 'parts');
            v_woken := v_woken || array(select t from jsonb_array_elements_text(v_part -> 'woken') t);
        end if;
    end loop;
    v_answer := heliograph._answers(p_project, 'turn_id', p_items, 'suspended', v_parts, v_woken);
    return v_answer;
end $$;

-- _read_suspend: the items of a round of suspend, each with the state that decides its outcome. p_agents: the agents
--   of all items of the batch. known: how many calls the turn has already; is_early: a report is kept for one of its
--   calls.
--   The caller holds the heads.
create function heliograph._read_suspend(
    p_project text, p_items jsonb, p_places integer[], p_agents text[]
) returns table (
    n integer, item jsonb, turn_id text, cards integer, calls integer, is_owned boolean,
    is_stopping boolean, stop jsonb, card_count integer, budgets text[], known bigint, is_early boolean
) language sql stable as $$
    select u.n, i.item, i.turn_id, i.cards, i.calls, h.agent_id is not null, h.stop_requested_at is not null,
           case when h.stop_requested_at is not null
                then heliograph._stop_order(h.stop_reason, h.stop_requested_at) end,
           t.card_count, t.budgets, o.known, m.is_early
      from unnest(p_places) u (n)
     cross join lateral (select p_items -> (u.n - 1) as item offset 0) e
     cross join lateral (
           select e.item, e.item ->> 'turn_id' as turn_id,
                  (e.item ->> 'epoch')::bigint as epoch, coalesce(jsonb_array_length(e.item -> 'cards'), 0) as cards,
                  coalesce(jsonb_array_length(e.item -> 'calls'), 0) as calls
           offset 0) i
      left join lateral (
           select x.agent_id, x.stop_requested_at, x.stop_reason from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = p_agents[u.n] and x.status = 'running'
              and x.active_agent_turn_id = i.turn_id and x.turn_epoch = i.epoch offset 0) h on true
      left join lateral (
           select x.card_count, x.budgets from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = i.turn_id offset 0) t on true
      left join lateral (
           select count(*) as known from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = i.turn_id offset 0) o on true
      left join lateral (
           select exists (select from heliograph.agent_inbox x
                           where x.project_id = p_project and x.agent_turn_id = i.turn_id
                             and x.payload is not null) as is_early offset 0) m on true
$$;

-- _suspend: write the accepted items of a round, and answer them; see suspend. p_places: their places in the batch.
--   p_is_family: some call of the batch is a child. p_is_early: a report is kept for one of these turns.
--   p_bytes: see _exceeds.
--   Returns {parts: {place: {first_seq, circuits, outcome, waits}}, woken}.
--   raises: see suspend
--   The caller holds the heads and the runs.
create function heliograph._suspend(
    p_project text, p_items jsonb, p_places integer[], p_is_family boolean, p_is_early boolean,
    p_bytes integer, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_firsts jsonb := coalesce(heliograph._open_calls(p_project, p_items, p_bytes, p_limits, p_now), '{}');
    v_woken text[] := '{}';
    v_suspended text[];
    v_is_all boolean;
    v_before bigint;  -- the newest signal of a run before the drafts of its item
begin
    if p_is_family then
        v_woken := heliograph._enqueue_children(p_project, p_items, v_firsts, p_now);
    end if;
    if p_is_early then
        perform heliograph._apply_early(p_project, p_items, p_limits, p_now);
    end if;
    -- after the children, because the log has their activations already
    for n in 0 .. jsonb_array_length(p_items) - 1 loop
        v_before := (v_firsts ->> (p_items -> n ->> 'turn_id'))::bigint - 1;
        if heliograph._crosses_checkpoint(v_before, v_before + jsonb_array_length(p_items -> n -> 'signals')) then
            perform heliograph._checkpoint(p_project, heliograph._run_of(p_items -> n ->> 'agent_id'), v_before);
        end if;
    end loop;
    v_suspended := heliograph._suspend_heads(p_project, p_items, p_now);
    v_is_all := cardinality(v_suspended) = jsonb_array_length(p_items);
    if not v_is_all then
        perform heliograph._keep_running(p_project, p_items, v_suspended, v_firsts);
    end if;
    return jsonb_build_object('woken', to_jsonb(v_woken), 'parts', (
        select jsonb_object_agg(p_places[i.n],
                   jsonb_build_object('first_seq', v_firsts -> (i.item ->> 'turn_id'))
                   || case when v_is_all or i.item ->> 'turn_id' = any (v_suspended) then '{}'
                           else jsonb_build_object('outcome', 'resolved', 'waits', coalesce(w.waits, '[]')) end
                   || case when i.item ? 'circuits' then jsonb_build_object('circuits', i.item -> 'circuits')
                           else '{}' end)
          from jsonb_array_elements(p_items) with ordinality i (item, n)
          left join lateral (
               select x.waits from heliograph._waits(p_project, i.item ->> 'turn_id') x
                where not v_is_all and i.item ->> 'turn_id' <> all (v_suspended) offset 0) w on true));
end $$;
