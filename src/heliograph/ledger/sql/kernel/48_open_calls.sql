-- Opening calls: the signals and the calls of a turn are written before the turn is suspended (K3).

-- _open_calls: write the calls, cards and drafts of a round of suspend, and enqueue the turns that the calls delegate.
--   Drafts that an earlier append of the same owner has written are not repeated, see append. p_is_usual: see
--   _check_suspend; p_bytes: see _exceeds.
--   Returns the agents that it woke.
--   raises: see suspend
--   locks:  a card id or a command that another caller is writing, and blobs, see _store_content; the caller holds the
--           heads and the runs
create function heliograph._open_calls(
    p_project text, p_items heliograph.suspension[], p_is_usual boolean, p_bytes integer,
    p_limits heliograph.project_limits, p_now timestamptz
) returns text[] language plpgsql as $$
declare
    v_item heliograph.suspension;
    v_has_calls boolean := false;
    v_cards integer := 0;
    v_logged text[] := '{}';
begin
    foreach v_item in array p_items loop
        v_has_calls := v_has_calls or coalesce(jsonb_array_length(v_item.calls) > 0, false);
        v_cards := v_cards + coalesce(jsonb_array_length(v_item.cards), 0);
        if v_item.written > 0 then
            v_logged := v_logged || v_item.run_id;
        end if;
        if v_item.budgets is not null then
            perform heliograph._spend_commands(p_project, v_item.turn_id, v_item.calls, v_item.budgets);
        end if;
    end loop;
    if v_has_calls then
        perform heliograph._write_waits(p_project, p_items, p_now);
    end if;
    if v_cards > 0 then
        perform heliograph._write_cards(p_project, p_items, v_cards, p_bytes, p_limits, p_now);
    end if;
    if cardinality(v_logged) > 0 then
        perform heliograph._log_suspended(p_project, p_items, p_now);
        perform heliograph._feed_runs(p_project, v_logged);
    end if;
    if p_is_usual then
        return '{}';
    end if;
    return heliograph._enqueue_children(p_project, p_items, p_now);
end $$;

-- _write_waits: write the waits and commands of the new calls of a round.
--   raises: 23505 for a command that another caller has written
--   The caller holds the heads and the runs.
create function heliograph._write_waits(p_project text, p_items heliograph.suspension[], p_now timestamptz) returns void
    language plpgsql as $$
begin
    with call as materialized (
        select i.epoch, i.base, i.turn_id, c.*
          from unnest(p_items) i cross join lateral heliograph._new_calls(p_project, i.turn_id, i.calls) c
         order by i.turn_id, c.n
    ), wait as (
        insert into heliograph.turn_waiting_tools
            (project_id, agent_turn_id, tool_call_id, step_id, tool, kind, effect, epoch, deadline, token_hash,
             after_execution, may_override, fails_fast, child_turn_id, taint, is_trusted, circuit, rate, opened_at,
             opened_seq)
        select p_project, turn_id, call_id, step_id, tool, kind, coalesce(effect, 'once'), epoch,
               p_now + make_interval(secs => timeout_seconds), sha256(convert_to(token, 'UTF8')),
               coalesce(after_execution, 'suspend'), coalesce(may_override, false), coalesce(fails_fast, false),
               child ->> 'turn_id', nullif(taint, '{}'), coalesce(is_trusted, false), circuit, rate, p_now, base + 1
          from call
    )
    insert into heliograph.outbox (project_id, key, kind, agent_turn_id, call_id, tool, pool, priority, subject,
                                   body, created_at, due_at, hidden_until)
    select p_project, 'cmd:' || turn_id || ':' || call_id, 'cmd', turn_id, call_id, tool,
           coalesce(command ->> 'pool', 'default'), coalesce((command ->> 'priority')::smallint, 1),
           command ->> 'subject',
           case when token is null then coalesce(nullif(command -> 'body', 'null'), '{}')
                else coalesce(nullif(command -> 'body', 'null'), '{}') || jsonb_build_object('token', token) end, p_now,
           coalesce((rate ->> 'starts_at')::timestamptz, p_now), (rate ->> 'starts_at')::timestamptz
      from call where jsonb_typeof(command) = 'object';
end $$;

-- _write_cards: write the cards of a round, p_cards in number. One that its box already has is skipped.
--   raises: 23505 for the id of another card
--   locks:  see _open_calls
create function heliograph._write_cards(
    p_project text, p_items heliograph.suspension[], p_cards integer, p_bytes integer,
    p_limits heliograph.project_limits, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_written text[];  -- the turn of each card
    v_other text;
begin
    with card as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, c.item ->> 'card_id', c.box_id, c.turn_id, c.epoch, c.item ->> 'kind',
               heliograph._store_content(p_project, c.item -> 'content', p_bytes, p_limits.card_bytes_max, p_now), p_now
          from (select distinct on (c.item ->> 'card_id') i.turn_id, i.box_id, i.epoch, c.item, c.n
                  from unnest(p_items) i cross join lateral jsonb_array_elements(i.cards) with ordinality c (item, n)
                 -- not `not exists`: the planner may join all cards of the project instead of looking up each key
                 where (select x.ctid from heliograph.cards x
                         where x.project_id = p_project and x.card_id = c.item ->> 'card_id') is null
                 order by c.item ->> 'card_id', i.turn_id, c.n) c
         order by c.turn_id, c.n
        returning agent_turn_id
    )
    select array_agg(c.agent_turn_id order by c.agent_turn_id) into v_written from card c;
    update heliograph.agent_turns t
       set card_count = t.card_count + cardinality(array_positions(v_written, i.turn_id))
      from unnest(p_items) i where t.ctid = i.turn_at and i.turn_id = any (v_written);
    if coalesce(cardinality(v_written), 0) < p_cards then
        select min(heliograph._other_card(p_project, i.turn_id, i.cards)) into v_other from unnest(p_items) i;
        if v_other is not null then
            raise exception using errcode = '23505', message =
                format('card_exists: another card has the id %s: choose another id', v_other);
        end if;
    end if;
end $$;

-- _log_suspended: append the drafts of a round to the logs of their runs.
--   The caller holds the runs.
create function heliograph._log_suspended(p_project text, p_items heliograph.suspension[], p_now timestamptz)
    returns void language plpgsql as $$
begin
    with logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, is_pending,
                                        recording)
        select p_project, i.run_id, i.base + 1, i.written, i.signals, i.turn_id, p_now, i.pending > 0,
               i.recording ->> 'body'
          from unnest(p_items) i where i.written > 0 order by i.run_id collate "C"
    )
    update heliograph.runs r
       set signal_seq = r.signal_seq + i.written, pending_reactions = r.pending_reactions + i.pending,
           version = r.version + sign(i.pending)::integer, updated_at = p_now
      from unnest(p_items) i where r.ctid = i.run_at and i.written > 0;
end $$;

-- _new_calls: the calls that a turn has not made before, in their order.
create function heliograph._new_calls(p_project text, p_turn_id text, p_calls jsonb) returns table (
    call_id text, step_id text, tool text, kind text, effect text, timeout_seconds float8, token text,
    after_execution text, may_override boolean, fails_fast boolean, command jsonb, child jsonb, taint text[],
    is_trusted boolean, circuit jsonb, rate jsonb, n bigint
) language sql stable as $$
    select c.*
      from rows from (jsonb_to_recordset(p_calls) as
           (call_id text, step_id text, tool text, kind text, effect text, timeout_seconds float8, token text,
            after_execution text, may_override boolean, fails_fast boolean, command jsonb, child jsonb, taint text[],
            is_trusted boolean, circuit jsonb, rate jsonb)) with ordinality
           c (call_id, step_id, tool, kind, effect, timeout_seconds, token, after_execution, may_override, fails_fast,
              command, child, taint, is_trusted, circuit, rate, n)
     where not exists (select from heliograph.turn_waiting_tools x
                        where x.project_id = p_project and x.agent_turn_id = p_turn_id and x.tool_call_id = c.call_id)
$$;
