-- Opening calls: the signals and the calls of a turn are written before the turn is suspended (K3).

-- _open_calls: write the cards, drafts, waits, edges and commands of a round of suspend. Drafts that an earlier append
--   of the same owner has written are not repeated, see append. p_bytes: see _exceeds.
--   Returns {turn_id: log position of its first draft}.
--   raises: see suspend
--   locks:  a card id or a command that another caller is writing, and blobs, see _store_content; the caller holds the
--           heads and the runs
create function heliograph._open_calls(
    p_project text, p_items jsonb, p_bytes integer, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_firsts jsonb;
    v_is_short boolean;
    v_logged text[];
    v_other text;
begin
    with item as materialized (
        select * from heliograph._suspending(p_project, p_items)
    ), call as materialized (
        select i.agent_id, i.turn_id, i.epoch, i.run_id, i.parent_step_id, i.signal_seq, c.*
          from item i cross join lateral heliograph._new_calls(p_project, i.turn_id, i.calls) c
    ), wait as (
        insert into heliograph.turn_waiting_tools
            (project_id, agent_turn_id, tool_call_id, agent_id, run_id, step_id, tool, kind, effect, epoch, deadline,
             token_hash, after_execution, may_override, fails_fast, child_turn_id, taint, is_trusted, circuit,
             rate, opened_at, opened_seq)
        select p_project, turn_id, call_id, agent_id, run_id, step_id, tool, kind, coalesce(effect, 'once'), epoch,
               p_now + make_interval(secs => timeout_seconds), sha256(convert_to(token, 'UTF8')),
               coalesce(after_execution, 'suspend'), coalesce(may_override, false), coalesce(fails_fast, false),
               child ->> 'turn_id', nullif(taint, '{}'), coalesce(is_trusted, false), circuit, rate, p_now,
               signal_seq + 1
          from call order by turn_id, n
    ), edge as (
        insert into heliograph.execution_edges
            (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, call_id, other_turn_id, cause_id,
             created_at)
        select p_project, turn_id, case when kind = 'child' then 'join' else 'tool_call' end, 'request', run_id,
               agent_id, call_id, child ->> 'turn_id', parent_step_id, p_now
          from call order by turn_id, n
    ), command as (
        insert into heliograph.outbox (project_id, key, kind, agent_turn_id, call_id, tool, pool, priority, subject,
                                       body, created_at, due_at, hidden_until)
        select p_project, 'cmd:' || turn_id || ':' || call_id, 'cmd', turn_id, call_id, tool,
               coalesce(command ->> 'pool', 'default'), coalesce((command ->> 'priority')::smallint, 1),
               command ->> 'subject',
               coalesce(nullif(command -> 'body', 'null'), '{}')
               || case when token is null then '{}' else jsonb_build_object('token', token) end, p_now,
               coalesce((rate ->> 'starts_at')::timestamptz, p_now), (rate ->> 'starts_at')::timestamptz
          from call where jsonb_typeof(command) = 'object' order by turn_id, n
    ), card as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, c.item ->> 'card_id', i.output_box_id, i.turn_id, i.epoch, c.item ->> 'kind',
               heliograph._store_content(p_project, c.item -> 'content', p_bytes, p_limits.card_bytes_max, p_now), p_now
          from item i cross join lateral jsonb_array_elements(i.cards) with ordinality c (item, n)
         order by i.turn_id, c.n
        on conflict do nothing
        returning agent_turn_id
    ), counted as (
        update heliograph.agent_turns t set card_count = t.card_count + c.count
          from (select x.at, y.count from (select agent_turn_id, count(*)::integer as count from card group by 1) y
                 cross join lateral (
                       select z.ctid as at from heliograph.agent_turns z
                        where z.project_id = p_project and z.agent_turn_id = y.agent_turn_id offset 0) x) c
         where t.ctid = c.at
    ), logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, is_pending,
                                        recording)
        select p_project, run_id, signal_seq + 1, written, signals, turn_id, p_now, has_pending, recording
          from item where written > 0 order by run_id collate "C"
    ), run as (
        update heliograph.runs r
           set signal_seq = r.signal_seq + i.written, updated_at = p_now,
               pending_reactions = r.pending_reactions + i.pending, version = r.version + sign(i.pending)::integer
          from (select run_at, written, case when not has_pending then 0 else (
                           select count(*)::integer from jsonb_array_elements(signals) s
                            where (s ->> 'is_pending')::boolean) end as pending
                  from item where written > 0) i
         where r.ctid = i.run_at
    )
    select jsonb_object_agg(turn_id, coalesce(last_append_seq, signal_seq + 1))
               filter (where written > 0 or last_append_seq is not null),
           (select count(*) from card) < sum(coalesce(jsonb_array_length(cards), 0)),
           array_agg(run_id order by run_id) filter (where written > 0)
      into v_firsts, v_is_short, v_logged from item;
    perform heliograph._feed_runs(p_project, v_logged);
    if v_is_short then
        select min(heliograph._other_card(p_project, i ->> 'turn_id', i -> 'cards')) into v_other
          from jsonb_array_elements(p_items) i;
        if v_other is not null then
            raise exception using errcode = '23505', message =
                format('card_exists: another card has the id %s: choose another id', v_other);
        end if;
    end if;
    return v_firsts;
end $$;

-- _suspending: the items of a round of suspend with the rows that they change. written: how many of its drafts are new;
--   last_append_seq: where the log has them if none is. The caller holds the heads and the runs.
create function heliograph._suspending(p_project text, p_items jsonb) returns table (
    agent_id text, turn_id text, epoch bigint, cards jsonb, signals jsonb, calls jsonb, run_id text,
    parent_step_id text, output_box_id text, run_at tid, signal_seq bigint, written integer, last_append_seq bigint,
    has_pending boolean, recording text
) language sql stable as $$
    select i.agent_id, i.turn_id, i.epoch, i.cards, i.signals, i.calls, h.run_id, h.parent_step_id,
           t.output_box_id, r.at, r.signal_seq, l.written, l.last_append_seq,
           i.signals @> '[{"is_pending": true}]', i.recording ->> 'body'
      from jsonb_to_recordset(p_items) as i
           (agent_id text, turn_id text, epoch bigint, signals_emitted integer, cards jsonb, signals jsonb, calls jsonb,
            recording jsonb)
     cross join lateral (
           select x.run_id, heliograph._signal_id(x.run_id, x.activation_seq) as parent_step_id
             from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = i.agent_id offset 0) h
     cross join lateral (
           select x.output_box_id from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = i.turn_id offset 0) t
     cross join lateral (
           select x.ctid as at, x.signal_seq from heliograph.runs x
            where x.project_id = p_project and x.run_id = h.run_id offset 0) r
     cross join lateral (
           select case when x.signals_emitted > i.signals_emitted then 0
                       else coalesce(jsonb_array_length(i.signals), 0) end as written,
                  case when x.signals_emitted > i.signals_emitted then x.last_append_seq end as last_append_seq
             from heliograph.leases x
            where x.project_id = p_project and x.agent_id = i.agent_id and x.turn_epoch = i.epoch offset 0) l
$$;

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
