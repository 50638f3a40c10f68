-- Endings. Every way a turn can end goes through _terminal: deliverable, state, task event, all in one commit
-- (K1, L0-03, L0-07, L0-80). The caller dispatches the next queued turn in the same transaction (K8).

-- _terminal: end one turn. Active or queued, under the head's lock. p_epoch: the writer's, null for the kernel itself.
--   The deliverable card goes to the output box (L0-82); open inbox rows are consumed (canceled, if the turn
--   never ran); the task event goes to the outbox, pointers only (L0-81, L0-86, L0-107); an active turn's head
--   becomes idle under the next epoch, its lease is closed (L0-72, K7).
--   raises: 23505 if the turn had a deliverable already
--   locks:  nothing; the caller holds the head
create function heliograph._terminal(
    p_project text, p_turn_id text, p_epoch bigint, p_card_id text, p_content jsonb, p_outcome text, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_turn heliograph.agent_turns;
    v_head heliograph.agent_state_head;
begin
    select * into v_turn from heliograph.agent_turns where project_id = p_project and agent_turn_id = p_turn_id;
    select * into v_head from heliograph.agent_state_head where project_id = p_project and agent_id = v_turn.agent_id;
    insert into heliograph.cards (project_id, card_id, agent_turn_id, turn_epoch, kind, content, created_at)
    values (p_project, p_card_id, p_turn_id, coalesce(p_epoch, v_head.turn_epoch), 'task.deliverable', p_content, p_now);
    insert into heliograph.box_cards (project_id, box_id, card_id) values (p_project, v_turn.output_box_id, p_card_id);
    update heliograph.agent_turns
       set state = 'done', outcome = p_outcome, deliverable_card_id = p_card_id, finished_at = p_now
     where project_id = p_project and agent_turn_id = p_turn_id;
    update heliograph.agent_inbox
       set status = case when status = 'queued' then 'canceled' else 'consumed' end, consumed_at = p_now
     where project_id = p_project and agent_id = v_turn.agent_id and agent_turn_id = p_turn_id
       and status in ('queued', 'pending', 'processing', 'deferred');
    insert into heliograph.outbox (project_id, kind, key, subject, agent_turn_id, body, created_at)
    values (p_project, 'task_event', 'evt:' || p_turn_id, 'evt.agent.' || v_turn.agent_id || '.task', p_turn_id,
            jsonb_build_object('agent_turn_id', p_turn_id, 'status', p_outcome, 'output_box_id', v_turn.output_box_id,
                               'deliverable_card_id', p_card_id), p_now);
    if v_head.active_agent_turn_id = p_turn_id then
        update heliograph.leases set ended_at = greatest(p_now, v_head.moved_at)
         where project_id = p_project and agent_id = v_head.agent_id and turn_epoch = v_head.turn_epoch
           and ended_at is null;
        update heliograph.agent_state_head
           set status = 'idle', turn_epoch = turn_epoch + 1, active_agent_turn_id = null, phase = null, owner = null,
               lease_until = null, ready_at = null, trace_id = null, parent_step_id = null,
               moved_at = greatest(p_now, moved_at)
         where project_id = p_project and agent_id = v_head.agent_id;
    end if;
end $$;

-- finish: the owner's ending: deliverable, signals, the run's new state and the turns these signals wake (K1, K24).
--   p_items: [{agent_id, turn_id, epoch, outcome, card_id, content, signals: [draft], reaction}], see _react.
--   Answers [{turn_id, outcome, targets, run}] in the order of p_items. outcome: 'ok'; 'conflict' when the run moved
--   on since the reaction was computed: nothing was written, run is the new view, compute again; 'duplicate' when
--   this very card is the turn's deliverable already (a retry after a lost reply); 'stale': another owner, stop.
--   raises: 23514 for a run that may not end yet
--   locks:  the heads of the turns and of the agents activated, then the runs
create function heliograph.finish(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_item jsonb;
    v_run_id text;
    v_outcome text;
    v_targets text[];
    v_answer jsonb := '[]';
begin
    perform heliograph._lock_heads(p_project, (
        select array_agg(i ->> 'agent_id') || coalesce(array_agg(t.run_id || '/' || (a ->> 'agent'))
                                                       filter (where a is not null), '{}')
          from jsonb_array_elements(p_items) i
          join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = i ->> 'turn_id'
          left join jsonb_array_elements(i #> '{reaction,activations}') a on true));
    perform heliograph._lock_runs(p_project, (
        select array_agg(t.run_id) from jsonb_array_elements(p_items) i
          join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = i ->> 'turn_id'));
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_targets := '{}';
        select run_id into v_run_id from heliograph.agent_turns
         where project_id = p_project and agent_turn_id = v_item ->> 'turn_id';
        if not heliograph._owns(p_project, v_item ->> 'agent_id', v_item ->> 'turn_id',
                                (v_item ->> 'epoch')::bigint) then
            v_outcome := case when exists (
                select from heliograph.agent_turns
                 where project_id = p_project and agent_turn_id = v_item ->> 'turn_id'
                   and deliverable_card_id = v_item ->> 'card_id') then 'duplicate' else 'stale' end;
        elsif (select version from heliograph.runs where project_id = p_project and run_id = v_run_id)
              is distinct from (v_item #>> '{reaction,version}')::bigint then  -- no version is no match
            v_outcome := 'conflict';
        else
            perform heliograph._terminal(p_project, v_item ->> 'turn_id', (v_item -> 'epoch')::bigint, v_item ->> 'card_id', v_item -> 'content',
                                         v_item ->> 'outcome', p_now);
            v_targets := heliograph._dispatch_next(p_project, array[v_item ->> 'agent_id'], p_now)
                || heliograph._react(p_project, v_run_id, v_item ->> 'turn_id', 1, v_item -> 'signals',
                                     v_item -> 'reaction', p_now);
            v_outcome := 'ok';
        end if;
        v_answer := v_answer || (
            jsonb_build_object('turn_id', v_item ->> 'turn_id', 'outcome', v_outcome, 'targets', to_jsonb(v_targets))
            || case when v_outcome = 'conflict'
                    then jsonb_build_object('run', heliograph._run_view(p_project, v_run_id)) else '{}' end);
    end loop;
    return v_answer;
end $$;

-- _end_by_kernel: end a turn that has no owner to end it: attempts exhausted, or past its TTL (K19, L0-87).
--   Deliverable, agent:failed in the log, and the reaction owed by the run (K25). Answers the targets to ring.
--   raises: 23505 if the turn had a deliverable already
--   locks:  the run; the caller holds the head
create function heliograph._end_by_kernel(
    p_project text, p_turn_id text, p_outcome text, p_code text, p_message text, p_now timestamptz
) returns text[] language plpgsql as $$
declare
    v_now timestamptz := heliograph._after_cards(p_project, p_turn_id, p_now);
    v_turn heliograph.agent_turns;
    v_card_id text := 'card_' || p_turn_id || '_end';
    v_error jsonb := jsonb_build_object('code', p_code, 'message', p_message, 'recoverable', false);
begin
    select * into v_turn from heliograph.agent_turns where project_id = p_project and agent_turn_id = p_turn_id;
    perform heliograph._lock_runs(p_project, array[v_turn.run_id]);
    perform heliograph._terminal(p_project, p_turn_id, null, v_card_id,
                                 jsonb_build_object('text', p_message, 'error', v_error), p_outcome, v_now);
    perform heliograph._write_signals(p_project, v_turn.run_id, r.signal_seq, p_turn_id,
        jsonb_build_array(jsonb_build_object(
            'name', 'agent:failed', 'agent', h.agent_name, 'owed', true,
            'parent', heliograph._signal_id(v_turn.run_id, v_turn.activation_seq),
            'payload', jsonb_build_object('agent', h.agent_name, 'outcome', p_outcome, 'error', v_error,
                                          'deliverable_card_id', v_card_id))), v_now)
       from heliograph.runs r, heliograph.agent_state_head h
      where r.project_id = p_project and r.run_id = v_turn.run_id
        and h.project_id = p_project and h.agent_id = v_turn.agent_id;
    update heliograph.runs
       set signal_seq = signal_seq + 1, owed = owed + 1, open_turns = open_turns - 1, version = version + 1,
           updated_at = v_now
     where project_id = p_project and run_id = v_turn.run_id;
    return heliograph._dispatch_next(p_project, array[v_turn.agent_id], v_now);
end $$;

-- _after_cards: p_now, or the time of the turn's newest card where that is later. A sweep reads its clock before it has
--   the head, and the owner may write in between: the end of a turn is not told to be before what it said.
--   raises: nothing
--   locks:  nothing; the caller holds the head
create function heliograph._after_cards(p_project text, p_turn_id text, p_now timestamptz) returns timestamptz
    language sql stable as $$
    select greatest(p_now, max(c.created_at))
      from heliograph.agent_turns t
      join heliograph.box_cards b on b.project_id = t.project_id and b.box_id = t.output_box_id
      join heliograph.cards c on c.project_id = t.project_id and c.card_id = b.card_id
     where t.project_id = p_project and t.agent_turn_id = p_turn_id
$$;
