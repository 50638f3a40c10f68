-- Endings. Each end of a turn goes through _terminal: deliverable, state and task event in one commit (K1, L0-03,
-- L0-07, L0-80). The caller dispatches the next queued turn in the same transaction (K8).

-- _terminal: end turns, active or queued, at most one of each agent.
--   p_places: the places of these turns in the arrays that follow. p_epochs: those of the owners; of a turn that the
--   kernel ends, the epoch that the end begins, so that no owner mistakes the deliverable for its own. p_child_stop:
--   {mode, grace_seconds} of the stop that ends the turns, for their delegated turns. Without it they are stopped
--   gracefully, with the grace of the turn's own pending stop, or with the default one.
--   p_bytes: see _exceeds. p_card_bytes: the limit card_bytes_max.
--   The deliverable card goes to the output box (L0-82). Open inbox rows are consumed, or canceled if the turn never
--   ran. The task event goes to the outbox (L0-81, L0-107); if the project certainly has no wire, the turn has none,
--   and lacks_event is true. The head of an active turn becomes idle under the next epoch, and its lease is closed
--   (L0-72, K7). For the rest see _follow_endings.
--   raises: 23505 if a turn had a deliverable already
--   locks:  a share of _wire_lock, without waiting; blobs, see _store_content, then see _close_calls. The caller holds
--           the heads and the runs
create function heliograph._terminal(
    p_project text, p_places integer[], p_agent_ids text[], p_turn_ids text[], p_epochs bigint[], p_outcomes text[],
    p_contents jsonb[], p_child_stop jsonb, p_bytes integer, p_card_bytes integer, p_now timestamptz
) returns void language plpgsql as $$
declare
    -- whether the next statement sees each wire that is declared before this transaction commits
    v_sees_wires constant boolean := current_setting('transaction_isolation') = 'read committed'
                                     and pg_try_advisory_xact_lock_shared(heliograph._wire_lock(p_project));
    v_has_more boolean;  -- a turn has what most turns lack
    v_calls jsonb;
begin
    with wire as materialized (
        select v_sees_wires and not exists (
               select from heliograph.project_wires w where w.project_id = p_project) as is_absent
    ), ending as (
        update heliograph.agent_turns t
           set state = 'done', outcome = p_outcomes[found.n], lacks_event = (select is_absent from wire),
               finished_at = p_now
          from (select p.n, x.at from unnest(p_places) p (n) cross join lateral (
                       select c.ctid as at from heliograph.agent_turns c
                        where c.project_id = p_project and c.agent_turn_id = p_turn_ids[p.n] offset 0) x) found
         where t.ctid = found.at
        returning found.n, t.agent_turn_id as turn_id, t.output_box_id,
                  t.parent_turn_id is not null or t.budgets is not null or t.callback_url is not null as has_more
    ), card as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, heliograph._deliverable_id(turn_id), output_box_id, turn_id, p_epochs[n], 'task.deliverable',
               heliograph._store_content(p_project, p_contents[n], p_bytes, p_card_bytes, p_now), p_now
          from ending
    ), message as (
        update heliograph.agent_inbox i
           set status = case when i.status = 'queued' then 'canceled' else 'consumed' end, consumed_at = p_now
          from (select x.at from ending e cross join lateral (
                       select m.ctid as at from heliograph.agent_inbox m
                        where m.project_id = p_project and m.agent_turn_id = e.turn_id
                          and m.status in ('queued', 'pending', 'processing', 'deferred') offset 0) x) found
         where i.ctid = found.at
    ), event as (
        insert into heliograph.outbox (project_id, key, kind, agent_turn_id, created_at, due_at)
        select p_project, 'evt:' || turn_id, 'task_event', turn_id, p_now, p_now
          from ending cross join wire where not wire.is_absent
    )
    select bool_or(has_more or (select count(*) from heliograph.turn_waiting_tools c
                                 where c.project_id = p_project and c.agent_turn_id = ending.turn_id
                                   and c.state = 'open') > 0)
      into v_has_more from ending;
    if v_has_more then
        v_calls := heliograph._calls_to_close(p_project, p_places, p_agent_ids, p_turn_ids, p_child_stop);
    end if;
    with head as (
        update heliograph.agent_state_head h
           set status = 'idle', turn_epoch = h.turn_epoch + 1, active_agent_turn_id = null, phase = null, owner = null,
               lease_until = null, ready_at = null, due_at = null, waiting_tool_count = 0, resume_deadline = null,
               resumes_on = null, expecting_correlation_id = null, stop_requested_at = null, force_at = null,
               stop_reason = null, terminates = false, sweep_failures = 0, activation_seq = null,
               moved_at = greatest(p_now, h.moved_at)
          from (select x.at from unnest(p_places) p (n) cross join lateral (
                       select c.ctid as at from heliograph.agent_state_head c
                        where c.project_id = p_project and c.agent_id = p_agent_ids[p.n]
                          and c.active_agent_turn_id = p_turn_ids[p.n] offset 0) x) found
         where h.ctid = found.at
        returning h.agent_id, h.turn_epoch - 1 as ended_epoch, h.moved_at
    )
    update heliograph.leases l set ended_at = found.moved_at
      from (select x.at, head.moved_at from head cross join lateral (
                   select c.ctid as at from heliograph.leases c
                    where c.project_id = p_project and c.agent_id = head.agent_id
                      and c.turn_epoch = head.ended_epoch and c.ended_at is null offset 0) x) found
     where l.ctid = found.at;
    if v_has_more then
        perform heliograph._follow_endings(p_project, array(select p_turn_ids[n] from unnest(p_places) n), v_calls,
                                           p_now);
    end if;
end $$;

-- _follow_endings: write what the end of turns brings beside their own rows: the reports to the turns that wait for
--   them, the end of their open calls (_close_calls), their callbacks (_create_turn_callbacks), and the settlement of
--   the reservations of their calls (_settle_ended). p_calls: see _calls_to_close.
--   locks:  see _close_calls
create function heliograph._follow_endings(p_project text, p_turn_ids text[], p_calls jsonb, p_now timestamptz)
    returns void language plpgsql as $$
declare
    v_budgeted text[];
    v_called_back text[];
begin
    insert into heliograph.outbox (project_id, key, kind, agent_turn_id, call_id, body, created_at, due_at)
    select p_project, 'report:' || u.turn_id, 'report', t.parent_turn_id, t.parent_call_id,
           jsonb_build_object('child_turn_id', u.turn_id), p_now, p_now
      from unnest(p_turn_ids) u (turn_id)
     cross join lateral (
           select x.parent_turn_id, x.parent_call_id from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = u.turn_id and x.parent_turn_id is not null offset 0) t;
    if p_calls is not null then
        perform heliograph._close_calls(p_project, p_calls, p_now);
    end if;
    select array_agg(u.turn_id order by u.turn_id) filter (where t.budgets is not null),
           array_agg(u.turn_id order by u.turn_id) filter (where t.callback_url is not null)
      into v_budgeted, v_called_back
      from unnest(p_turn_ids) u (turn_id)
     cross join lateral (
           select x.budgets, x.callback_url from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = u.turn_id offset 0) t;
    if v_called_back is not null then
        perform heliograph._create_turn_callbacks(p_project, v_called_back, p_now);
    end if;
    if v_budgeted is not null then
        perform heliograph._settle_ended(p_project, v_budgeted);
    end if;
end $$;

-- _close_calls: close the open calls of turns that end. Their commands are deleted, and halted (62_commands.sql);
--   their delegated turns are stopped.
--   p_turns: [{turn_id, child_stop}]; child_stop: the body of the stops.
--   locks:  the commands that are deleted, ascending by key, and stops of children that exist already. The caller
--           holds the heads
create function heliograph._close_calls(p_project text, p_turns jsonb, p_now timestamptz) returns void
    language plpgsql as $$
declare
    v_keys text[];
    v_stops jsonb;
    v_taken heliograph.outbox[];
begin
    with wait as (
        update heliograph.turn_waiting_tools w set state = 'closed', resolved_at = p_now
          from (select x.at, t.child_stop
                  from jsonb_to_recordset(p_turns) as t (turn_id text, child_stop jsonb)
                 cross join lateral (
                       select c.ctid as at from heliograph.turn_waiting_tools c
                        where c.project_id = p_project and c.agent_turn_id = t.turn_id
                          and c.state = 'open' offset 0) x) found
         where w.ctid = found.at
        returning w.agent_turn_id, w.tool_call_id, w.child_turn_id, found.child_stop
    )
    select array_agg('cmd:' || w.agent_turn_id || ':' || w.tool_call_id order by w.agent_turn_id, w.tool_call_id),
           jsonb_object_agg(w.child_turn_id, w.child_stop) filter (where w.child_turn_id is not null)
      into v_keys, v_stops from wait w;
    v_taken := heliograph._acknowledge(p_project, v_keys, p_now);
    insert into heliograph.outbox (project_id, key, kind, agent_turn_id, call_id, body, created_at, due_at)
    (select p_project, 'stop:' || s.key, 'stop', s.key, null, s.value, p_now, p_now from jsonb_each(v_stops) s
      order by s.key collate "C")
    union all (select h.* from unnest(v_taken) o cross join lateral heliograph._halt_of(o, p_now) h
      order by h.key)
    on conflict (project_id, key) do update  -- a stop that is in the outbox remains, unless this one is stronger
       set body = excluded.body, due_at = excluded.due_at, deliveries = 0, published_at = null
     where outbox.kind = 'stop' and excluded.body ->> 'mode' = 'force' and outbox.body ->> 'mode' <> 'force';
end $$;

-- _child_stop: the stop of the delegated turns of an ending, see child_stop of _terminal.
create function heliograph._child_stop(p_given jsonb, p_grace interval) returns jsonb
    language sql immutable as $$
    select jsonb_build_object('reason', 'parent_termination') || coalesce(p_given, jsonb_build_object(
               'mode', 'graceful', 'grace_seconds', extract(epoch from p_grace)::float8))
$$;

-- _calls_to_close: the turns among these that have open calls, as _close_calls takes them; null if none has. p_places,
--   p_child_stop: see _terminal.
create function heliograph._calls_to_close(
    p_project text, p_places integer[], p_agent_ids text[], p_turn_ids text[], p_child_stop jsonb
) returns jsonb language sql stable as $$
    select jsonb_agg(jsonb_build_object(
               'turn_id', p_turn_ids[p.n], 'child_stop', heliograph._child_stop(
                   p_child_stop, greatest(h.force_at, h.stop_requested_at) - h.stop_requested_at))
                     order by p_turn_ids[p.n])
      from unnest(p_places) p (n)
     cross join lateral (
           select x.force_at, x.stop_requested_at from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = p_agent_ids[p.n] offset 0) h
     where (select count(*) from heliograph.turn_waiting_tools c
             where c.project_id = p_project and c.agent_turn_id = p_turn_ids[p.n] and c.state = 'open') > 0
$$;

-- _end_by_kernel: end a turn whose owner does not: attempts exhausted, TTL over, stopped (K12, K19, L0-87). Writes the
--   deliverable, agent:failed in the log, and a pending reaction of the run (K25). Returns the agents that it woke.
--   p_is_untrusted: the message quotes untrusted content, so both are marked. p_child_stop: see _terminal.
--   raises: 23505 if the turn had a deliverable already
--   locks:  the run, then see _terminal; the caller holds the head
create function heliograph._end_by_kernel(
    p_project text, p_turn_id text, p_outcome text, p_code text, p_message text, p_now timestamptz,
    p_details jsonb default null, p_is_untrusted boolean default false, p_child_stop jsonb default null
) returns text[] language plpgsql as $$
declare
    v_now timestamptz := heliograph._not_before_cards(p_project, p_turn_id, p_now);
    v_turn heliograph.agent_turns;
    v_error jsonb := jsonb_build_object('code', p_code, 'message', p_message, 'recoverable', false)
                     || case when p_details is null then '{}' else jsonb_build_object('details', p_details) end;
    v_trust constant jsonb := case when p_is_untrusted then '{"trust": "untrusted"}' else '{}' end;
    v_content constant jsonb := jsonb_build_object('text', p_message, 'error', v_error) || v_trust;
begin
    select * into v_turn from heliograph.agent_turns where project_id = p_project and agent_turn_id = p_turn_id;
    perform heliograph._lock_runs(p_project, array[v_turn.run_id]);
    update heliograph.agent_turns t  -- its parent reads it, see 48_human_waits.sql
       set human_wait_since = v_now - nullif(heliograph._human_wait_time(p_project, p_turn_id, h.moved_at, true, v_now),
                                             '0')
      from heliograph.agent_state_head h
     where t.project_id = p_project and t.agent_turn_id = p_turn_id
       and h.project_id = p_project and h.agent_id = v_turn.agent_id and h.active_agent_turn_id = p_turn_id
       and h.status = 'suspended'
       and (t.human_wait_since is null or heliograph._waits_for_child(p_project, p_turn_id, v_now));
    perform heliograph._terminal(p_project, '{1}', array[h.agent_id], array[p_turn_id], array[h.turn_epoch + 1],
                                 array[p_outcome], array[v_content], p_child_stop, octet_length(v_content::text),
                                 (heliograph._limits(p_project)).card_bytes_max, v_now)
       from heliograph.agent_state_head h
      where h.project_id = p_project and h.agent_id = v_turn.agent_id;
    update heliograph.runs set open_turns = open_turns - 1
     where project_id = p_project and run_id = v_turn.run_id;
    perform heliograph._log(p_project, v_turn.run_id, p_turn_id, jsonb_build_array(jsonb_build_object(
            'name', 'agent:failed', 'agent', h.agent_name, 'is_pending', true,
            'parent', v_turn.activation_seq::text,
            'payload', jsonb_build_object('agent', h.agent_name, 'outcome', p_outcome, 'error', v_error,
                                          'deliverable_card_id', heliograph._deliverable_id(p_turn_id))) || v_trust),
                                          v_now)
       from heliograph.agent_state_head h
      where h.project_id = p_project and h.agent_id = v_turn.agent_id;
    return heliograph._dispatch_next(p_project, array[v_turn.agent_id], v_now);
end $$;

-- _not_before_cards: p_now, or the time of the turn's newest card if that is later. A sweep reads its clock before it
--   has the head, and the owner may write in between. The end of a turn is not recorded as earlier than its cards.
--   The caller holds the head.
create function heliograph._not_before_cards(p_project text, p_turn_id text, p_now timestamptz) returns timestamptz
    language sql stable as $$
    select greatest(p_now, (
        select max(n.created_at)
          from (select 'box_' || p_turn_id as box_id
                 union all  -- if its output box was replaced
                select b.box_id from heliograph.boxes b
                 where b.project_id = p_project and b.writer_turn_id = p_turn_id) w
         cross join lateral (
               select c.created_at from heliograph.cards c
                where c.project_id = p_project and c.box_id = w.box_id
                order by c.position desc limit 1) n))
$$;
