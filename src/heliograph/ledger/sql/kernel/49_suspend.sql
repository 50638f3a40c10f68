-- Suspending: a running turn releases its worker until its calls have results (K3, K16, L0-51 to L0-55).

-- suspend: write the calls of running turns, and suspend the turns. Commands leave from the outbox after this commit,
--   so no result comes before its wait exists.
--   p_items: {agent_id, turn_id, epoch, phase, signals_emitted, cards, signals, join, seen, terminates, recording,
--   calls: [{call_id, step_id, tool, kind, effect, timeout_seconds, token, after_execution, may_override, fails_fast,
--   taint, is_trusted, circuit_breaker: {type, target, failure_threshold, success_threshold, timeout_seconds,
--   half_open_max_calls}, rates: [{kind, name, count, seconds, amount}], command: {subject, body, pool, priority},
--   child: {agent, instance, turn_id, activation, cause, priority, pool, max_attempts, ttl_seconds, context_box_id,
--   result_fields, budget, callback_url}}]}, as one array for each key.
--   signals_emitted, cards, signals: as in append. join: with 'all' the turn resumes when none of its calls is open,
--   earlier ones included; with 'each' as soon as one is resolved. recording: see _recording_of. seen: the highest
--   resolved_position that the owner has received from claim or with 'resolved'; without it the inbox decides which
--   results the owner has received.
--   terminates: a graceful stop lets a worker run the terminate phase of the turn; without it the turn ends at once.
--   kind: programs outside report the calls of kind tool and human. child: a turn of another agent, or of an instance
--   of one, whose cause and activation are indexes of signals. timer: resolved as success at its deadline.
--   fails_fast: the first call of a step that fails cancels the other calls of the step that have this mark. taint,
--   is_trusted, circuit_breaker, rates: as in begin_call. A command leaves, and a child begins, once the call has its
--   tokens. timeout_seconds null: no deadline. token: the capability to report; the table keeps its hash, and the
--   command keeps it while the call is open. A call id that the turn has already remains as it is, resolved or not.
--   Returns rows {turn_id, outcome, first_seq, targets, woken, code, message, stop, waits, circuits, circuit, rate,
--   calls, budget} in the order of the items. targets: the workers to notify, for the whole call. woken: in the first
--   row, the agents that the call woke. circuits: {call id: {type, target, generation, is_trial}} of an item that has a
--   call with a circuit_breaker. 'suspended'. 'resolved', with waits as in claim: everything is written, but the turn
--   keeps running, because early reports resolved its last calls, or because a streaming join has a result that its
--   owner has not received. 'stopped': a graceful stop was pending and has ended the turn. 'stopping', with stop as in
--   renew: a graceful stop is pending, and the turn terminates; nothing is written, and its owner runs its terminate
--   phase. 'stale'. 'rejected' with code and message; nothing is written: too_many_waits, too_many_cards,
--   payload_too_large, fan_out, recursion_depth_exceeded, queue_full, unknown_agent, delegation_cycle,
--   run_stopping, id_conflict, unknown_box, box_in_use, reserved_name, invalid_signal; BUDGET_EXCEEDED, if a budget,
--   which the answer names, lacks the tool calls; CIRCUIT_OPEN with circuit and calls: {call id: {message, circuit}} of
--   the calls that their breakers do not admit; RATE_LIMITED with rate, as in begin_call, and calls: {call id:
--   {message, rate}}. Each call of kind tool counts as one, from the moment it is made.
--   raises: see _enter; 22023 for arrays of the wrong shape, an invalid call, card or phase; 23514 for a card of kind
--           task.deliverable; 23505 for the id of another card, or of a turn that another caller creates at the same
--           moment; 40001 if the head of a child's instance has just been created: try again
--   locks:  the heads of the turns and of the children's agents, then the runs, then the buckets; the children's
--           contexts against prune
create function heliograph.suspend(
    p_project text, p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_phase text[], p_signals_emitted bigint[],
    p_cards jsonb[], p_signals jsonb[], p_join text[], p_seen bigint[], p_terminates boolean[], p_calls jsonb[],
    p_recording jsonb[], p_now timestamptz
) returns table (
    turn_id text, outcome text, first_seq bigint, targets text[], woken text[], code text, message text, stop jsonb,
    waits jsonb, circuits jsonb, circuit jsonb, rate jsonb, calls jsonb, budget jsonb
) language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_runs constant text[] := heliograph._runs_of(p_agent_id);
    v_bytes integer;
    v_is_usual boolean;  -- no call is a child, or has a circuit breaker or rates
    v_children text[] := '{}';
    v_places integer[];
    v_item heliograph.suspension;
    v_accepted heliograph.suspension[];  -- of a round
    v_answer jsonb; v_answers jsonb[];  -- of the items of the call; null, or without an outcome, for a suspended turn
    v_firsts bigint[];
    v_woken text[] := '{}';
begin
    perform heliograph._check_shapes(array[heliograph._shape(p_agent_id), heliograph._shape(p_turn_id),
        heliograph._shape(p_epoch), heliograph._shape(p_phase), heliograph._shape(p_signals_emitted),
        heliograph._shape(p_cards), heliograph._shape(p_signals), heliograph._shape(p_join), heliograph._shape(p_seen),
        heliograph._shape(p_terminates), heliograph._shape(p_calls), heliograph._shape(p_recording)]);
    v_bytes := heliograph._check_columns(p_cards || p_signals || p_calls || p_recording);
    v_is_usual := heliograph._check_suspend(p_phase, p_join, p_cards, p_signals, p_calls, p_recording);
    if not v_is_usual then
        v_children := heliograph._child_agents(v_runs, p_calls);
    end if;
    perform heliograph._lock_heads(p_project, p_agent_id || v_children);
    perform heliograph._lock_runs(p_project, v_runs);
    if not v_is_usual then
        perform heliograph._lock_new_heads(p_project, v_children);
        perform heliograph._lock_rates(p_project, to_jsonb(p_calls));
    end if;
    for v_places in select places from heliograph._rounds(v_runs) order by places loop
        v_accepted := '{}';
        foreach v_item in array array(
            select (v_runs[s.place], p_agent_id[s.place], p_turn_id[s.place], p_epoch[s.place], p_phase[s.place],
                    p_cards[s.place], p_signals[s.place], coalesce(p_join[s.place], 'all'), p_seen[s.place],
                    coalesce(p_terminates[s.place], false), p_calls[s.place], p_recording[s.place], s.*
                   )::heliograph.suspension
              from heliograph._read_suspend(p_project, v_places, p_agent_id, p_turn_id, p_epoch, p_signals_emitted,
                                            p_signals, p_now) s) loop
            v_answer := heliograph._judge_suspend(p_project, v_item, p_turn_id, p_calls, v_is_usual, v_bytes, v_limits);
            if v_answer is null then
                v_accepted := v_accepted || v_item;
                v_firsts[v_item.place] := v_item.first_seq;
                continue;
            end if;
            v_answers[v_item.place] := v_answer;
            if v_answer ->> 'outcome' = 'stopped' then
                v_woken := v_woken || heliograph._end_if_stopping(p_project, v_item.agent_id, p_now);
            end if;
        end loop;
        if not v_is_usual then
            select a.items, a.answers into v_accepted, v_answers
              from heliograph._admit_items(p_project, v_accepted, v_answers, p_now) a;
        end if;
        if cardinality(v_accepted) > 0 then
            v_woken := v_woken || heliograph._open_calls(p_project, v_accepted, v_is_usual, v_bytes, v_limits, p_now);
            v_answers := heliograph._suspend_turns(p_project, v_accepted, v_answers, v_limits, p_now);
        end if;
    end loop;
    if cardinality(v_woken) > 0 then
        v_woken := array(select w from unnest(v_woken) w group by w order by w);
    end if;
    targets := heliograph._queues(p_project, v_woken);
    for n in 1 .. cardinality(p_turn_id) loop
        turn_id := p_turn_id[n];
        outcome := coalesce(v_answers[n] ->> 'outcome', 'suspended');
        first_seq := case when outcome in ('suspended', 'resolved') then v_firsts[n] end;
        woken := case when n = 1 and cardinality(v_woken) > 0 then v_woken end;
        if v_answers is not null then
            code := v_answers[n] ->> 'code';
            message := v_answers[n] ->> 'message';
            stop := v_answers[n] -> 'stop';
            waits := v_answers[n] -> 'waits';
            circuits := v_answers[n] -> 'circuits';
            circuit := v_answers[n] -> 'circuit';
            rate := v_answers[n] -> 'rate';
            calls := v_answers[n] -> 'calls';
            budget := v_answers[n] -> 'budget';
        end if;
        return next;
    end loop;
end $$;

-- _read_suspend: the items of a round of suspend, each with the state that decides its answer, and the rows that it
--   changes, as in heliograph.suspension. head_at: null if the caller does not own the turn. base: the newest signal of
--   its run. written: how many of its drafts are new; pending: those of them with is_pending; first_seq: where the log
--   has its first draft. known: how many calls the turn has already; is_early: a report is kept for one of its calls.
--   The caller holds the heads and the runs.
create function heliograph._read_suspend(
    p_project text, p_places integer[], p_agent_id text[], p_turn_id text[], p_epoch bigint[],
    p_signals_emitted bigint[], p_signals jsonb[], p_now timestamptz
) returns table (
    place integer, head_at tid, moved_at timestamptz, stop_requested_at timestamptz, stop_reason text,
    turn_at tid, box_id text, card_count integer, budgets text[], run_at tid, base bigint,
    lease_at tid, written integer, pending integer, first_seq bigint, known bigint, is_early boolean
) language sql stable as $$
    select u.n, h.at, greatest(p_now, h.moved_at), h.stop_requested_at, h.stop_reason, t.at,
           t.output_box_id, t.card_count, t.budgets, r.at, r.signal_seq, l.at,
           case when l.has_drafts then 0 else coalesce(jsonb_array_length(p_signals[u.n]), 0) end,
           heliograph._count_pending(p_signals[u.n]),
           case when l.has_drafts then l.last_append_seq
                when jsonb_array_length(p_signals[u.n]) > 0 then r.signal_seq + 1 end,
           (select count(*) from heliograph.turn_waiting_tools x
             where x.project_id = p_project and x.agent_turn_id = p_turn_id[u.n]),
           exists (select from heliograph.agent_inbox x
                    where x.project_id = p_project and x.agent_turn_id = p_turn_id[u.n] and x.payload is not null
                   offset 0)
      from unnest(p_places) u (n)
      left join lateral (
           select x.ctid as at, x.run_id, x.moved_at, x.stop_requested_at, x.stop_reason
             from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = p_agent_id[u.n] and x.status = 'running'
              and x.active_agent_turn_id = p_turn_id[u.n] and x.turn_epoch = p_epoch[u.n] offset 0) h on true
      left join lateral (
           select x.ctid as at, x.output_box_id, x.card_count, x.budgets from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = p_turn_id[u.n] offset 0) t on true
      left join lateral (
           select x.ctid as at, x.signal_seq from heliograph.runs x
            where x.project_id = p_project and x.run_id = h.run_id offset 0) r on true
      left join lateral (
           select x.ctid as at, x.last_append_seq,
                  coalesce(x.signals_emitted > p_signals_emitted[u.n], false) as has_drafts from heliograph.leases x
            where x.project_id = p_project and x.agent_id = p_agent_id[u.n] and x.turn_epoch = p_epoch[u.n]
           offset 0) l on true
$$;

-- _judge_suspend: null for an item that may suspend its turn, or else its answer, see suspend. p_turn_id, p_calls: of
--   all items of the call. p_is_usual: see _check_suspend; p_bytes: see _exceeds.
--   locks:  the contexts of children against prune; the caller holds the heads and the runs
create function heliograph._judge_suspend(
    p_project text, p_item heliograph.suspension, p_turn_id text[], p_calls jsonb[], p_is_usual boolean,
    p_bytes integer, p_limits heliograph.project_limits
) returns jsonb language plpgsql as $$
declare
    v_answer jsonb;
begin
    if p_item.head_at is null then
        return '{"outcome": "stale"}';
    elsif p_item.stop_requested_at is not null and p_item.terminates then
        return jsonb '{"outcome": "stopping"}' || heliograph._stop_order(p_item.stop_reason, p_item.stop_requested_at);
    elsif p_item.stop_requested_at is not null then
        return '{"outcome": "stopped"}';
    end if;
    v_answer := heliograph._reject_reserved(p_item.signals);
    if v_answer is null and heliograph._exceeds(p_item.signals, p_bytes, p_limits.payload_bytes_max) then
        v_answer := heliograph._reject_signals(p_item.signals, p_limits);
    end if;
    if v_answer is null and (p_item.card_count + jsonb_array_length(p_item.cards) > p_limits.cards_max
                             or p_bytes > p_limits.blob_bytes_max) then
        v_answer := heliograph._reject_cards(p_project, p_item.turn_id, p_item.cards, p_bytes, p_limits);
    end if;
    if v_answer is null then
        v_answer := heliograph._reject_drafts(p_item.run_id, p_item.base, p_item.signals);
    end if;
    if v_answer is null and (p_item.known + jsonb_array_length(p_item.calls) > p_limits.waits_max
                             or p_bytes > p_limits.result_bytes_max) then
        v_answer := heliograph._reject_calls(p_project, p_item.turn_id, p_item.calls, p_limits);
    end if;
    if v_answer is null and not p_is_usual then
        v_answer := coalesce(
            heliograph._reject_children(p_project, p_item.run_id, p_item.turn_id, p_item.calls, p_limits),
            heliograph._reject_duplicates(p_project, p_turn_id, p_calls, p_item.place));
    end if;
    if v_answer is null and p_item.budgets is not null then
        v_answer := heliograph._reject_commands(p_project, p_item.turn_id, p_item.calls, p_item.budgets);
    end if;
    return v_answer;
end $$;

-- _admit_items: admit the calls of these items of a round of suspend, and take their tokens, one item after another.
--   Returns the admitted items, whose calls have their marks, and p_answers with the circuits of these and the
--   rejections of the others.
--   The caller holds the heads and the buckets.
create function heliograph._admit_items(
    p_project text, p_items heliograph.suspension[], p_answers jsonb[], p_now timestamptz,
    out items heliograph.suspension[], out answers jsonb[]
) language plpgsql as $$
declare
    v_item heliograph.suspension;
    v_admitted jsonb;
    v_taken jsonb;
begin
    items := '{}';
    answers := p_answers;
    foreach v_item in array p_items loop
        v_admitted := jsonb_build_object('calls', v_item.calls);
        if heliograph._has_circuits(v_item.calls) then
            v_admitted := heliograph._admit_calls(p_project, v_item.turn_id, v_item.calls, p_now);
        end if;
        if v_admitted ->> 'outcome' is null and heliograph._has_rates(v_admitted -> 'calls') then
            v_taken := heliograph._take_calls(p_project, v_item.turn_id, v_admitted -> 'calls', p_now);
            v_admitted := case when v_taken ->> 'outcome' is null then v_admitted || v_taken else v_taken end;
        end if;
        answers[v_item.place] := v_admitted;
        if v_admitted ->> 'outcome' is null then
            answers[v_item.place] := v_admitted - 'calls';
            v_item.calls := v_admitted -> 'calls';
            items := items || v_item;
        end if;
    end loop;
end $$;
