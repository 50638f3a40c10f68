-- Inline calls: effects that an owner has here and now. The intent is committed before the effect, the result after it,
-- so that whoever owns the turn next knows what may be done again and what must not be (K13, K14).

-- begin_call: announce effects before they happen. p_items: [{agent_id, turn_id, epoch, call_id, step_id, tool, effect,
--   timeout_seconds, taint, is_trusted, reserve}]. taint: the untrusted sources that the turn has read, null for none.
--   is_trusted: the call's author vouches for its result. reserve: {tokens, micros, model_calls, tool_calls}, what the
--   call may use of the budgets that hold for its turn. effect: pure, idempotent, transactional or once (unless said
--   otherwise: once). Answers [{turn_id, call_id, outcome}] in the order of p_items. 'fresh': do it; so answers the
--   same epoch again, which has not done it before it has this answer. 'again': another owner began it, and it may be
--   repeated; what is transactional and open has not happened, since it is committed together with its result. 'done',
--   with status and content: it is recorded. 'in_doubt', with the same: another owner began it, it may have happened,
--   and it must not happen twice, so it counts as unknown from now on. 'stale'. 'refused' with code and message
--   (too_many_waits; not_inline: the id belongs to a call that the turn waits for; BUDGET_EXCEEDED: a budget, which the
--   answer names, lacks what it reserves).
--   raises: see _enter; 22023 for an id without 1 to 200 bytes, an effect that there is not, a timeout out of range
--   locks:  the heads, then the runs
create function heliograph.begin_call(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_doubts jsonb;
    v_reserves constant boolean := jsonb_path_exists(p_items, '$[*].reserve.type() ? (@ != "null")');
    v_owes boolean;
    v_answers jsonb;
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_calls(p_items);
    if v_reserves then
        perform heliograph._check_amounts(p_items, 'reserve');
    end if;
    perform heliograph._lock_items(p_project, p_items);
    with judged as materialized (
        select i.n, i.item ->> 'turn_id' as turn_id, i.item ->> 'call_id' as call_id, i.item ->> 'step_id' as step_id,
               i.item ->> 'tool' as tool, coalesce(i.item ->> 'effect', 'once') as effect,
               (i.item ->> 'epoch')::bigint as epoch, (i.item ->> 'timeout_seconds')::float8 as timeout_seconds,
               heliograph._taint(i.item) as taint, coalesce((i.item ->> 'is_trusted')::boolean, false) as is_trusted,
               h.agent_id, h.run_id, h.parent_step_id, w.at as wait_at, w.status, w.result_card_id, w.reserved,
               -- of those that may begin it: one that is stale opens nothing
               row_number() over (partition by i.item ->> 'turn_id', i.item ->> 'call_id', h.agent_id
                                  order by i.n) = 1 as is_first,
               case when h.agent_id is null then '{"outcome": "stale"}'
                    when w.at is null and row_number() over (partition by h.agent_id
                                                             order by i.n) + o.known > v_limits.waits_max
                    then heliograph._rejection('too_many_waits', format(
                             'the turn would have %s calls; at most %s are allowed (waits_max)',
                             row_number() over (partition by h.agent_id order by i.n) + o.known, v_limits.waits_max))
                    when w.at is null then '{"outcome": "fresh"}'
                    when w.state = 'resolved' then '{"outcome": "done"}'
                    when w.kind <> 'inline' then heliograph._rejection('not_inline',
                                                                       format('call %s is waited for as a %s',
                                             i.item ->> 'call_id', w.kind))
                    when w.epoch = (i.item ->> 'epoch')::bigint then '{"outcome": "fresh"}'
                    when w.effect in ('pure', 'idempotent', 'transactional') then '{"outcome": "again"}'
                    else '{"outcome": "in_doubt"}' end as verdict
          from jsonb_array_elements(p_items) with ordinality i (item, n)
          left join lateral (
               select x.agent_id, x.run_id, x.parent_step_id from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = i.item ->> 'agent_id' and x.status = 'running'
                  and x.active_agent_turn_id = i.item ->> 'turn_id'
                  and x.turn_epoch = (i.item ->> 'epoch')::bigint offset 0) h on true
          left join lateral (
               select x.ctid as at, x.* from heliograph.turn_waiting_tools x
                where h.agent_id is not null and x.project_id = p_project and x.agent_turn_id = i.item ->> 'turn_id'
                  and x.tool_call_id = i.item ->> 'call_id' offset 0) w on true
          left join lateral (
               select count(*) as known from heliograph.turn_waiting_tools x
                where w.at is null and h.agent_id is not null and x.project_id = p_project
                  and x.agent_turn_id = i.item ->> 'turn_id' offset 0) o on true
    ), opened as (
        insert into heliograph.turn_waiting_tools
            (project_id, agent_turn_id, tool_call_id, agent_id, run_id, step_id, tool, kind, effect, epoch, deadline,
             taint, is_trusted, opened_at)
        select p_project, turn_id, call_id, agent_id, run_id, step_id, tool, 'inline', effect, epoch,
               p_now + make_interval(secs => timeout_seconds), taint, is_trusted, p_now
          from judged where verdict ->> 'outcome' = 'fresh' and wait_at is null and is_first order by n
    ), edge as (
        insert into heliograph.execution_edges
            (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, call_id, cause_id, created_at)
        select p_project, turn_id, 'tool_call', 'request', run_id, agent_id, call_id, parent_step_id, p_now
          from judged where verdict ->> 'outcome' = 'fresh' and wait_at is null and is_first order by n
    ), taken_over as (
        update heliograph.turn_waiting_tools w set epoch = j.epoch
          from judged j where w.ctid = j.wait_at and j.verdict ->> 'outcome' = 'again' and j.is_first
    )
    select jsonb_agg(jsonb_build_object('turn_id', j.turn_id, 'call_id', j.call_id) || j.verdict
                     || case when j.verdict ->> 'outcome' = 'done'
                             then jsonb_build_object('status', j.status, 'content', k.content) else '{}' end
                     || case when v_reserves and j.wait_at is null and j.is_first and j.verdict ->> 'outcome' = 'fresh'
                             then jsonb '{"is_new": true}' else '{}' end order by j.n),
           jsonb_agg(jsonb_build_object('turn_id', j.turn_id, 'call_id', j.call_id, 'status', 'unknown', 'error',
                         jsonb_build_object('code', 'IN_DOUBT', 'recoverable', false, 'message',
                             'its worker was lost between its beginning and its end')) order by j.n)
               filter (where j.verdict ->> 'outcome' = 'in_doubt' and j.is_first),
           bool_or(j.verdict ->> 'outcome' = 'in_doubt' and j.reserved is not null)
      into v_answers, v_doubts, v_owes
      from judged j
      left join lateral (
           select heliograph._content(p_project, x.content) as content from heliograph.cards x
            where x.project_id = p_project and x.card_id = j.result_card_id offset 0) k on true;
    if v_doubts is not null then
        perform heliograph._resolve(p_project, v_doubts, octet_length(v_doubts::text), v_limits, true, p_now);
        v_answers := heliograph._with_results(p_project, v_answers);
    end if;
    if v_owes then  -- it may have happened
        perform heliograph._settle(p_project, d.item ->> 'turn_id', d.item ->> 'call_id', null)
           from jsonb_array_elements(v_doubts) with ordinality d (item, n);
    end if;
    if v_reserves then
        v_answers := heliograph._reserve(p_project, p_items, v_answers);
    end if;
    return coalesce(v_answers, '[]');
end $$;

-- _taint: the untrusted sources that an item names; null for none.
create function heliograph._taint(p_item jsonb) returns text[]
    language sql immutable as $$
    select case when jsonb_typeof(p_item -> 'taint') = 'array' and p_item -> 'taint' <> '[]'
                then array(select t.source from jsonb_array_elements_text(p_item -> 'taint') with ordinality t (source,
                        n) order by n) end
$$;

-- _with_results: answers of begin_call; those in doubt with the status and the content that they have been given.
create function heliograph._with_results(p_project text, p_answers jsonb) returns jsonb
    language sql stable as $$
    select jsonb_agg(a.item || coalesce(w.result, '{}') order by a.n)
      from jsonb_array_elements(p_answers) with ordinality a (item, n)
      left join lateral (
           select jsonb_build_object('status', x.status, 'content', heliograph._content(p_project, c.content)) as result
             from heliograph.turn_waiting_tools x
             join heliograph.cards c on c.project_id = p_project and c.card_id = x.result_card_id
            where a.item ->> 'outcome' = 'in_doubt' and x.project_id = p_project
              and x.agent_turn_id = a.item ->> 'turn_id' and x.tool_call_id = a.item ->> 'call_id' offset 0) w on true
$$;

-- record_call: what came of effects that begin_call announced. p_items: [{agent_id, turn_id, epoch, call_id, status,
--   result, error, signals: [draft], said, used, taint, not_made}]. taint: the untrusted sources that the turn has read
--   by now, where the call itself has read some; without it those of begin_call stay. not_made: {step_id, tool, taint}
--   of a call that was not begun, since it is not to be made at all: it is opened here, and recorded in the same
--   commit. used: what it used of the kinds that it reserved; of those that are not named all that it reserved, but
--   nothing where the status is canceled: it did not happen. status: success (with result), or failed, timeout,
--   unknown, canceled (with error). signals and said as in append; the log says of the call what they say. Answers
--   [{turn_id, call_id, outcome, first_seq}] in the order of p_items: 'ok'; 'duplicate': it was recorded before, and
--   nothing is written; 'stale'; 'refused' with code and message (payload_too_large; not_begun; not_inline;
--   too_many_waits; reserved_name; invalid_signal).
--   raises: see _enter; 22023 for another status, an error that is missing, or a call that is none
--   locks:  the heads, then the runs
create function heliograph.record_call(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_bytes integer;
    v_item jsonb;
    v_results jsonb;
    v_used jsonb;
    v_answer jsonb;
    v_answers jsonb := '[]';
begin
    v_bytes := heliograph._check_json(p_items);
    if jsonb_path_exists(p_items, '$[*].used.type() ? (@ != "null")') then
        perform heliograph._check_amounts(p_items, 'used');
    end if;
    if jsonb_path_exists(p_items, '$[*].not_made.type() ? (@ != "null")') then
        perform heliograph._check_not_made(p_items);
    end if;
    if exists (select from jsonb_array_elements(p_items) i
                where not coalesce(i ->> 'status' in ('success', 'failed', 'timeout', 'unknown', 'canceled'), false)
                   or (i ->> 'status' <> 'success' and i ->> 'error' is null)) then
        raise exception using errcode = '22023', message =
            'a call is recorded as success, or as failed, timeout, unknown or canceled with an error';
    end if;
    perform heliograph._lock_items(p_project, p_items);
    for v_item in
        select i.item || jsonb_build_object('is_first',
                   row_number() over (partition by i.item ->> 'turn_id', i.item ->> 'call_id' order by i.n) = 1)
          from jsonb_array_elements(p_items) with ordinality i (item, n) order by i.n
    loop
        -- here: it counts those that were opened before it
        v_answer := heliograph._judge_record(p_project, v_item, v_bytes, v_limits);
        if v_answer ->> 'outcome' = 'ok' and not (v_item ->> 'is_first')::boolean then
            v_answer := '{"outcome": "duplicate"}';
        elsif v_answer ->> 'outcome' = 'ok' then
            if v_answer ? 'owes' then
                v_used := coalesce(v_used, '[]') || v_item;
            end if;
            if v_answer ? 'opens' then
                perform heliograph._open_not_made(p_project, v_item, p_now);
            elsif heliograph._taint(v_item) is not null then
                update heliograph.turn_waiting_tools set taint = heliograph._taint(v_item)
                 where project_id = p_project and agent_turn_id = v_item ->> 'turn_id'
                   and tool_call_id = v_item ->> 'call_id';
            end if;
            v_answer := v_answer - '{owes,opens}'::text[] || jsonb_build_object('first_seq',
                    heliograph._append_drafts(p_project, v_item, v_limits, p_now));
            v_results := coalesce(v_results, '[]') || jsonb_build_object('turn_id', v_item -> 'turn_id', 'call_id',
                v_item -> 'call_id', 'status', v_item -> 'status', 'output', v_item -> 'result', 'error',
                    v_item -> 'error');
        end if;
        v_answers := v_answers || (jsonb_build_object('turn_id', v_item -> 'turn_id', 'call_id', v_item -> 'call_id')
                                   || v_answer);
    end loop;
    if v_results is not null then
        perform heliograph._resolve(p_project, v_results, v_bytes, v_limits, false, p_now);
    end if;
    if v_used is not null then
        perform heliograph._settle(p_project, u.item ->> 'turn_id', u.item ->> 'call_id', case u.item ->> 'status'
                                   when 'canceled'
                                   then jsonb '{"tokens": 0, "micros": 0, "model_calls": 0, "tool_calls": 0}'
                                       else '{}' end
                                   || coalesce(nullif(u.item -> 'used', 'null'), '{}'))
           from jsonb_array_elements(v_used) with ordinality u (item, n);
    end if;
    return v_answers;
end $$;

-- _open_not_made: open a call that is recorded as not made; see record_call. Nothing happened, so it could be done
--   again. The caller holds the head.
create function heliograph._open_not_made(p_project text, p_item jsonb, p_now timestamptz) returns void
    language plpgsql as $$
declare
    v_head heliograph.agent_state_head;
begin
    select * into v_head from heliograph.agent_state_head where project_id = p_project
        and agent_id = p_item ->> 'agent_id';
    insert into heliograph.turn_waiting_tools
        (project_id, agent_turn_id, tool_call_id, agent_id, run_id, step_id, tool, kind, effect, epoch, taint,
         is_trusted, opened_at)
    values (p_project, p_item ->> 'turn_id', p_item ->> 'call_id', v_head.agent_id, v_head.run_id,
            p_item #>> '{not_made,step_id}',
            p_item #>> '{not_made,tool}', 'inline', 'pure', v_head.turn_epoch, heliograph._taint(p_item -> 'not_made'),
            true, p_now);
    insert into heliograph.execution_edges
        (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, call_id, cause_id, created_at)
    values (p_project, p_item ->> 'turn_id', 'tool_call', 'request', v_head.run_id, v_head.agent_id,
            p_item ->> 'call_id', v_head.parent_step_id, p_now);
end $$;

-- _judge_record: the outcome of one recorded call, before anything of it is written; see record_call. owes: it is to be
--   settled; opens: it is to be opened first.
--   The caller holds the head.
create function heliograph._judge_record(
    p_project text, p_item jsonb, p_bytes integer, p_limits heliograph.project_limits
) returns jsonb
    language plpgsql stable as $$
declare
    v_wait heliograph.turn_waiting_tools;
    v_opens boolean := false;
    v_known bigint;
begin
    if not heliograph._owns(p_project, p_item ->> 'agent_id', p_item ->> 'turn_id', (p_item ->> 'epoch')::bigint) then
        return '{"outcome": "stale"}';
    end if;
    select * into v_wait from heliograph.turn_waiting_tools
     where project_id = p_project and agent_turn_id = p_item ->> 'turn_id' and tool_call_id = p_item ->> 'call_id';
    if not found and coalesce(jsonb_typeof(p_item -> 'not_made'), 'null') <> 'null' then
        select count(*) into v_known from heliograph.turn_waiting_tools
         where project_id = p_project and agent_turn_id = p_item ->> 'turn_id';
        if v_known >= p_limits.waits_max then
            return heliograph._rejection('too_many_waits', format(
                'the turn would have %s calls; at most %s are allowed (waits_max)', v_known + 1, p_limits.waits_max));
        end if;
        v_opens := true;
    elsif not found then
        return heliograph._rejection('not_begun', format('call %s was not begun: begin_call comes first',
                                                         p_item ->> 'call_id'));
    elsif v_wait.kind <> 'inline' then
        return heliograph._rejection('not_inline', format('call %s is waited for as a %s', p_item ->> 'call_id',
                                                          v_wait.kind));
    elsif v_wait.state <> 'open' then
        return '{"outcome": "duplicate"}';
    end if;
    return coalesce(heliograph._refuse_result(p_item, p_limits),
                    heliograph._refuse_cards_and_signals(p_project, p_item, p_bytes, p_limits),
                    jsonb '{"outcome": "ok"}'
                    || case when v_wait.reserved is not null or p_item ->> 'used' is not null
                        then jsonb '{"owes": true}' else '{}' end
                    || case when v_opens then jsonb '{"opens": true}' else '{}' end);
end $$;
