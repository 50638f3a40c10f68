-- suspend: a running turn gives itself back until its calls are answered (K3, K16, L0-51 to L0-55). The waits are
-- written in the commit that suspends, and commands leave from the outbox, after it: no answer can come too early to be
-- known.

-- suspend: p_items: [{agent_id, turn_id, epoch, phase, said, cards, signals, join, seen, calls: [{call_id, step_id,
--   tool, kind, effect, timeout_seconds, token, after_execution, may_override, fails_fast, taint, is_trusted, command:
--   {subject, body}, child: {agent, instance,
--   turn_id, activation, cause, priority, max_attempts, ttl_seconds, context_box_id, result_fields, budget,
--   callback_url}}]}]. said, cards, signals: as in append. join: 'all' resumes when no call of the turn is open (also
--   none that was opened before), 'each' as soon as one is resolved. seen: the highest resolved_position that the owner
--   was told, by claim or by 'resolved'; where it is not given, the inbox says what the owner was told.
--   kind: tool and human are reported from outside; child: a turn of another agent, or of an instance of it, that this
--   one waits for, with cause and activation as indexes of signals; timer: resolved as success at its deadline.
--   fails_fast: the first of the calls of one step that are made so, and that does not succeed, has the others
--   canceled. taint, is_trusted: as in begin_call. timeout_seconds null: no deadline. token: the capability to report,
--   kept hashed, and in the command while it is open. A call id that the turn has already stays what it is, resolved or
--   not. Answers [{turn_id, outcome, first_seq, targets}] in the order of p_items. 'suspended'. 'resolved', with
--   "waits" as in claim: all is written, but the turn runs on, since nothing is open any more (reports were early), or,
--   of a streaming join, a result is there that its owner was not told. 'stopped': a graceful stop waited for the turn,
--   and has ended it. 'stale'. 'refused' with code and message, nothing written: too_many_waits, too_many_cards,
--   payload_too_large, fan_out, recursion_depth_exceeded, queue_full, unknown_agent, delegation_cycle, run_stopping,
--   id_conflict, unknown_box, box_in_use, reserved_name, invalid_signal; BUDGET_EXCEEDED: a budget, which the answer
--   names, lacks the tool calls. Each call of kind tool counts as one, as soon as it is made.
--   raises: see _enter; 22023 for a call, a card or a phase that is none; 23514 for a card that says it is a
--           deliverable; 23505 for the id of another card, or of a turn that somebody else gave at the same moment;
--           40001 when the head of a child's instance came to be just now: try again
--   locks:  the heads of the turns and of the children's agents, then the runs; the children's contexts against prune
create function heliograph.suspend(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_agents text[] := array(select i.item ->> 'agent_id' from jsonb_array_elements(p_items) with ordinality i (item, n)
                             order by n);
    v_runs text[] := array(select heliograph._run_of(a) from unnest(v_agents) with ordinality u (a, n) order by n);
    v_children text[] := heliograph._child_agents(p_items);
    v_places integer[];
    v_ok integer[];
    v_stopping text[];
    v_is_early boolean;
    v_spends boolean;
    v_bytes integer;
    v_agent text;
    v_part jsonb;
    v_woken text[] := '{}';
    v_answers jsonb := '[]';
begin
    v_bytes := heliograph._check_json(p_items);
    perform heliograph._check_suspend(p_items);
    perform heliograph._lock_heads(p_project, v_agents || v_children);
    perform heliograph._lock_runs(p_project, v_runs);
    if cardinality(v_children) > 0 then
        perform heliograph._lock_new_heads(p_project, v_children);
    end if;
    for v_places in select places from heliograph._rounds(v_runs) order by places loop
        with judged as materialized (
            select n, i.turn_id, m.is_early, case
                   when h.agent_id is null then '{"outcome": "stale"}'
                   when h.stop_requested_at is not null then '{"outcome": "stopped"}'
                   else coalesce(
                       -- a check of every item costs more than all else: asked first whether it may find anything
                       case when i.item -> 'signals' is not null then heliograph._refuse_names(i.item) end,
                       case when t.card_count + i.cards > v_limits.cards_max
                                 or heliograph._exceeds(i.item, v_bytes, least(v_limits.payload_bytes_max,
                                                                               v_limits.blob_bytes_max))
                            then heliograph._refuse_cards_and_signals(p_project, i.item, v_bytes, v_limits) end,
                       (select d.refusal from heliograph._refuse_own_drafts(p_project, i.item) d),
                       case when o.known + i.calls > v_limits.waits_max
                                 or heliograph._exceeds(i.item, v_bytes, v_limits.result_bytes_max)
                            then heliograph._refuse_calls(p_project, i.item, v_limits) end,
                       case when cardinality(v_children) > 0
                            then coalesce(heliograph._refuse_children(p_project, v_runs[n], i.item, v_limits),
                                          heliograph._refuse_duplicates(p_project, p_items, n)) end,
                       case when t.budgets is not null then heliograph._refuse_commands(p_project, i.item,
                               t.budgets) end,
                       '{"outcome": "suspended"}') end as verdict, t.budgets is not null as spends
              from unnest(v_places) n
             cross join lateral (select p_items -> (n - 1) as item offset 0) e
             cross join lateral (
                   select e.item, e.item ->> 'turn_id' as turn_id,
                          (e.item ->> 'epoch')::bigint as epoch,
                          coalesce(jsonb_array_length(e.item -> 'cards'), 0) as cards,
                          coalesce(jsonb_array_length(e.item -> 'calls'), 0) as calls
                   offset 0) i
              left join lateral (
                   select x.agent_id, x.stop_requested_at from heliograph.agent_state_head x
                    where x.project_id = p_project and x.agent_id = v_agents[n] and x.status = 'running'
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
        )
        select coalesce(jsonb_agg(jsonb_build_object('n', n, 'turn_id', turn_id) || verdict order by n)
                            filter (where verdict <> '{"outcome": "suspended"}'), '[]'),
               array_agg(n order by n) filter (where verdict = '{"outcome": "suspended"}'),
               array_agg(v_agents[n] order by n) filter (where verdict = '{"outcome": "stopped"}'), bool_or(is_early),
               bool_or(spends)
          into v_part, v_ok, v_stopping, v_is_early, v_spends
          from judged;
        v_answers := v_answers || v_part;
        for v_agent in select a from unnest(v_stopping) a loop
            v_woken := v_woken || heliograph._end_if_stopping(p_project, v_agent, p_now);
        end loop;
        if v_ok is not null then
            if v_spends then
                perform heliograph._spend_commands(p_project, heliograph._items_at(p_items, v_ok));
            end if;
            v_part := heliograph._suspend(p_project, heliograph._items_at(p_items, v_ok), v_ok,
                                          cardinality(v_children) > 0, v_is_early, v_bytes, v_limits, p_now);
            v_answers := v_answers || (v_part -> 'answers');
            v_woken := v_woken || array(select t from jsonb_array_elements_text(v_part -> 'woken') t);
        end if;
    end loop;
    v_part := heliograph._bells(p_project, v_woken);
    return coalesce((
        select jsonb_agg(a - 'n' || case a ->> 'n' when '1' then v_part else v_part - 'woken' end
                         order by (a ->> 'n')::integer)
          from jsonb_array_elements(v_answers) a), '[]');
end $$;

-- _suspend: the items of a round that are taken; see suspend. p_places: theirs in the batch. p_is_family: whether any
--   call of the batch is a child; p_is_early: whether any report is kept for one of these turns; p_bytes: see _exceeds.
--   Answers {answers: [{n, turn_id, outcome, first_seq, waits}], woken}.
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
begin
    if p_is_family then
        v_woken := heliograph._enqueue_children(p_project, p_items, v_firsts, p_now);
    end if;
    if p_is_early then
        perform heliograph._apply_early(p_project, p_items, p_limits, p_now);
    end if;
    v_suspended := heliograph._suspend_heads(p_project, p_items, p_now);
    v_is_all := cardinality(v_suspended) = jsonb_array_length(p_items);
    if not v_is_all then
        perform heliograph._keep_running(p_project, p_items, v_suspended, v_firsts, p_now);
    end if;
    return jsonb_build_object('woken', to_jsonb(v_woken), 'answers', (
        select jsonb_agg(jsonb_build_object('n', p_places[i.n], 'turn_id', i.item -> 'turn_id',
                                            'first_seq', v_firsts -> (i.item ->> 'turn_id'))
                         || case when v_is_all or i.item ->> 'turn_id' = any (v_suspended)
                             then '{"outcome": "suspended"}'
                                 else jsonb_build_object('outcome', 'resolved', 'waits', coalesce(w.waits, '[]')) end
                                     order by i.n)
          from jsonb_array_elements(p_items) with ordinality i (item, n)
          left join lateral (
               select x.waits from heliograph._waits(p_project, i.item ->> 'turn_id') x
                where not v_is_all and i.item ->> 'turn_id' <> all (v_suspended) offset 0) w on true));
end $$;

-- _open_calls: what the items of a round say, and their calls: cards, drafts (once, see _append_drafts), waits, edges,
--   commands. p_bytes: see _exceeds. Answers {turn_id: log position of its first draft}.
--   raises: see suspend
--   locks:  a card id or a command that somebody else is just writing, and blobs, see _store_content; the caller holds
--           the heads and the runs
create function heliograph._open_calls(
    p_project text, p_items jsonb, p_bytes integer, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_firsts jsonb;
    v_is_short boolean;
    v_other text;
begin
    -- rows are found by key and changed where they were found, see _terminal
    with item as materialized (
        select i.agent_id, i.turn_id, i.epoch, i.cards, i.signals, i.calls, h.run_id, h.parent_step_id, t.at as turn_at,
               t.output_box_id, r.at as run_at, r.signal_seq, said.count as written, said.seq as said_seq
          from jsonb_to_recordset(p_items) as i
               (agent_id text, turn_id text, epoch bigint, said integer, cards jsonb, signals jsonb, calls jsonb)
         cross join lateral (
               select x.run_id, x.parent_step_id from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = i.agent_id offset 0) h
         cross join lateral (
               select x.ctid as at, x.output_box_id from heliograph.agent_turns x
                where x.project_id = p_project and x.agent_turn_id = i.turn_id offset 0) t
         cross join lateral (
               select x.ctid as at, x.signal_seq from heliograph.runs x
                where x.project_id = p_project and x.run_id = h.run_id offset 0) r
         cross join lateral (
               select case when x.said > i.said then 0 else coalesce(jsonb_array_length(i.signals), 0) end as count,
                      case when x.said > i.said then x.said_seq end as seq
                 from heliograph.leases x
                where x.project_id = p_project and x.agent_id = i.agent_id and x.turn_epoch = i.epoch offset 0) said
    ), call as materialized (
        select i.agent_id, i.turn_id, i.epoch, i.run_id, i.parent_step_id, c.*
          from item i
         cross join lateral rows from (jsonb_to_recordset(i.calls) as
               (call_id text, step_id text, tool text, kind text, effect text, timeout_seconds float8, token text,
                after_execution text, may_override boolean, fails_fast boolean, command jsonb, child jsonb,
                taint text[], is_trusted boolean)) with ordinality
               c (call_id, step_id, tool, kind, effect, timeout_seconds, token, after_execution, may_override,
                  fails_fast, command, child, taint, is_trusted, n)
         where not exists (select from heliograph.turn_waiting_tools x
                            where x.project_id = p_project and x.agent_turn_id = i.turn_id
                              and x.tool_call_id = c.call_id)
    ), wait as (
        insert into heliograph.turn_waiting_tools
            (project_id, agent_turn_id, tool_call_id, agent_id, run_id, step_id, tool, kind, effect, epoch, deadline,
             token_hash, after_execution, may_override, fails_fast, child_turn_id, taint, is_trusted, opened_at)
        select p_project, turn_id, call_id, agent_id, run_id, step_id, tool, kind, coalesce(effect, 'once'), epoch,
               p_now + make_interval(secs => timeout_seconds), sha256(convert_to(token, 'UTF8')),
               coalesce(after_execution, 'suspend'), coalesce(may_override, false), coalesce(fails_fast, false),
               child ->> 'turn_id', nullif(taint, '{}'), coalesce(is_trusted, false), p_now
          from call order by turn_id, n
    ), edge as (
        insert into heliograph.execution_edges
            (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, call_id, other_turn_id, cause_id,
             created_at)
        select p_project, turn_id, case when kind = 'child' then 'join' else 'tool_call' end, 'request', run_id,
               agent_id, call_id, child ->> 'turn_id', parent_step_id, p_now
          from call order by turn_id, n
    ), command as (
        insert into heliograph.outbox (project_id, key, kind, agent_turn_id, call_id, tool, subject, body, created_at,
                                       due_at)
        select p_project, 'cmd:' || turn_id || ':' || call_id, 'cmd', turn_id, call_id, tool, command ->> 'subject',
               coalesce(nullif(command -> 'body', 'null'), '{}')
               || case when token is null then '{}' else jsonb_build_object('token', token) end, p_now, p_now
          from call where jsonb_typeof(command) = 'object' order by turn_id, n
    ), card as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, c.item ->> 'card_id', i.output_box_id, i.turn_id, i.epoch, c.item ->> 'kind',
               case when heliograph._exceeds(c.item -> 'content', p_bytes, p_limits.card_bytes_max)
                           or c.item -> 'content' ? '$blob'
                    then heliograph._store_content(p_project, c.item -> 'content', p_limits.card_bytes_max, p_now)
                    else c.item -> 'content' end, p_now
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
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, owed)
        select p_project, run_id, signal_seq + 1, written, signals, turn_id, p_now, signals @> '[{"owed": true}]'
          from item where written > 0 order by run_id
    ), run as (
        update heliograph.runs r
           set signal_seq = r.signal_seq + i.written, updated_at = p_now, owed = r.owed + i.owed,
               version = r.version + sign(i.owed)::integer
          from (select run_at, written, case when not signals @> '[{"owed": true}]' then 0 else (
                           select count(*)::integer from jsonb_array_elements(signals) s where (s ->> 'owed')::boolean)
                               end as owed
                  from item where written > 0) i
         where r.ctid = i.run_at
    )
    select jsonb_object_agg(turn_id, coalesce(said_seq, signal_seq + 1)) filter (where written > 0
            or said_seq is not null),
           (select count(*) from card) < sum(coalesce(jsonb_array_length(cards), 0))
      into v_firsts, v_is_short from item;
    if v_is_short then
        select min(heliograph._other_card(p_project, i ->> 'turn_id', i -> 'cards')) into v_other
          from jsonb_array_elements(p_items) i;
        if v_other is not null then
            raise exception using errcode = '23505', message = format('card_exists: there is another card %s already',
                                                                      v_other);
        end if;
    end if;
    return v_firsts;
end $$;

-- _apply_early: resolve the calls that were answered before they were opened, each by the first report whose token is
--   right; the others of that call are dead.
--   locks:  see _resolve; the caller holds the heads and the runs
create function heliograph._apply_early(
    p_project text, p_items jsonb, p_limits heliograph.project_limits, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_results jsonb;
begin
    select jsonb_agg(jsonb_build_object('turn_id', e.turn_id, 'call_id', e.call_id, 'inbox_id', e.inbox_id,
                                        'message_type', 'tool_result',
               'status', e.payload -> 'status', 'output', e.payload -> 'result', 'error', e.payload -> 'error',
               'session', e.payload -> 'session') order by e.inbox_id)
      into v_results
      from (select distinct on (i.item ->> 'turn_id', w.tool_call_id)
                   i.item ->> 'turn_id' as turn_id, w.tool_call_id as call_id, m.inbox_id, m.payload
              from jsonb_array_elements(p_items) i (item)
             cross join lateral (
                   select x.inbox_id, x.correlation_id, x.payload from heliograph.agent_inbox x
                    where x.project_id = p_project and x.agent_turn_id = i.item ->> 'turn_id'
                      and x.payload is not null offset 0) m
             cross join lateral (
                   select x.tool_call_id from heliograph.turn_waiting_tools x
                    where x.project_id = p_project and x.agent_turn_id = i.item ->> 'turn_id'
                      and x.tool_call_id = m.correlation_id
                      and x.state = 'open' and x.kind in ('tool', 'human')
                      and (x.token_hash is null or x.token_hash = decode(m.payload ->> 'token_hash', 'hex')) offset 0) w
             order by i.item ->> 'turn_id', w.tool_call_id, m.inbox_id) e;
    if v_results is not null then
        perform heliograph._resolve(p_project, v_results, octet_length(v_results::text), p_limits, true, p_now);
    end if;
    update heliograph.agent_inbox m set status = 'dead', payload = null, consumed_at = p_now
      from (select x.at from jsonb_array_elements(p_items) i (item) cross join lateral (
                   select y.ctid as at from heliograph.agent_inbox y
                    where y.project_id = p_project and y.agent_turn_id = i.item ->> 'turn_id' and y.payload is not null
                      and exists (select from heliograph.turn_waiting_tools w
                                   where w.project_id = p_project and w.agent_turn_id = i.item ->> 'turn_id'
                                     and w.tool_call_id = y.correlation_id) offset 0) x) e
     where m.ctid = e.at;
end $$;

-- _suspend_heads: suspend the turns of a round that have something to wait for: running -> suspended, the lease closed,
--   their messages consumed. Open waits are counted here, after all that was written (K16). Answers the turns
--   suspended. The caller holds the heads.
create function heliograph._suspend_heads(p_project text, p_items jsonb, p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_suspended text[];
begin
    with item as materialized (
        select i.turn_id, i.epoch, i.phase, coalesce(i."join", 'all') as resumes_on, o.waits, o.deadline, o.is_people,
               h.at, h.agent_id, h.run_id, greatest(p_now, h.moved_at) as moved_at
          from jsonb_to_recordset(p_items) as i (agent_id text, turn_id text, epoch bigint, phase text, "join" text,
                                                 seen integer)
         cross join lateral (
               select count(*) as waits, min(x.deadline) as deadline, bool_and(x.kind = 'human') as is_people
                 from heliograph.turn_waiting_tools x
                where x.project_id = p_project and x.agent_turn_id = i.turn_id and x.state = 'open'
                  and x.kind <> 'inline' offset 0) o
         cross join lateral (
               select x.ctid as at, x.agent_id, x.run_id, x.moved_at from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = i.agent_id offset 0) h
         where o.waits > 0 and not (coalesce(i."join" = 'each', false) and case
               when i.seen is null then exists (
                    select from heliograph.agent_inbox x
                     where x.project_id = p_project and x.agent_turn_id = i.turn_id and x.applied
                       and x.status = 'pending')
               else exists (select from heliograph.turn_waiting_tools x
                             where x.project_id = p_project and x.agent_turn_id = i.turn_id
                               and x.resolved_position > i.seen) end)
    ), lease as (
        update heliograph.leases l set ended_at = f.moved_at
          from (select x.at, i.moved_at from item i cross join lateral (
                       select y.ctid as at from heliograph.leases y
                        where y.project_id = p_project and y.agent_id = i.agent_id
                          and y.turn_epoch = i.epoch offset 0) x) f
         where l.ctid = f.at
    ), message as (
        update heliograph.agent_inbox m set status = 'consumed', consumed_at = p_now
          from (select x.at from item i cross join lateral (
                       select y.ctid as at from heliograph.agent_inbox y
                        where y.project_id = p_project and y.agent_turn_id = i.turn_id and y.status = 'processing'
                          and y.payload is null offset 0) x) f
         where m.ctid = f.at
    ), turn as (  -- see 47_people.sql
        update heliograph.agent_turns t set people_since = f.moved_at
          from (select x.at, i.moved_at from item i
                 cross join lateral (
                       select y.status from heliograph.runs y
                        where i.is_people and y.project_id = p_project and y.run_id = i.run_id offset 0) r
                 cross join lateral (
                       select y.ctid as at from heliograph.agent_turns y
                        where r.status = 'running' and y.project_id = p_project
                          and y.agent_turn_id = i.turn_id offset 0) x) f
         where t.ctid = f.at
    ), head as (
        update heliograph.agent_state_head h
           set status = 'suspended', owner = null, lease_until = null, phase = coalesce(i.phase, h.phase),
               waiting_tool_count = i.waits, resume_deadline = i.deadline, resumes_on = i.resumes_on,
               expecting_correlation_id = null, moved_at = i.moved_at
          from item i where h.ctid = i.at
        returning h.active_agent_turn_id
    )
    select array_agg(active_agent_turn_id order by active_agent_turn_id) into v_suspended from head;
    return coalesce(v_suspended, '{}');
end $$;

-- _keep_running: the turns of a round that are not suspended run on, and their owners are told: the messages of results
--   are theirs now, their drafts are counted as said.
--   The caller holds the heads.
create function heliograph._keep_running(
    p_project text, p_items jsonb, p_suspended text[], p_firsts jsonb, p_now timestamptz
) returns void
    language plpgsql as $$
begin
    with item as materialized (
        select i.agent_id, i.turn_id, i.epoch, i.phase, i.said, coalesce(jsonb_array_length(i.signals), 0) as count,
               (p_firsts ->> i.turn_id)::bigint as first_seq
          from jsonb_to_recordset(p_items) as i
               (agent_id text, turn_id text, epoch bigint, phase text, said integer, signals jsonb)
         where i.turn_id <> all (p_suspended)
    ), lease as (
        update heliograph.leases l set said = l.said + f.count, said_seq = f.first_seq
          from (select x.at, i.count, i.first_seq from item i cross join lateral (
                       select y.ctid as at from heliograph.leases y
                        where y.project_id = p_project and y.agent_id = i.agent_id and y.turn_epoch = i.epoch
                          and i.count > 0 and not coalesce(y.said > i.said, false) offset 0) x) f
         where l.ctid = f.at
    ), message as (
        update heliograph.agent_inbox m set status = 'processing', turn_epoch = f.epoch
          from (select x.at, i.epoch from item i cross join lateral (
                       select y.ctid as at from heliograph.agent_inbox y
                        where y.project_id = p_project and y.agent_turn_id = i.turn_id and y.applied
                          and y.status = 'pending' offset 0) x) f
         where m.ctid = f.at
    )
    update heliograph.agent_state_head h set phase = f.phase
      from (select x.at, i.phase from item i cross join lateral (
                   select y.ctid as at from heliograph.agent_state_head y
                    where y.project_id = p_project and y.agent_id = i.agent_id and y.phase <> i.phase offset 0) x) f
     where h.ctid = f.at;
end $$;
