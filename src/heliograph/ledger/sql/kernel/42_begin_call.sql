-- Beginning inline calls: an owner commits the intent of an effect before the effect happens, so that the
-- records show the next owner which calls may be repeated (K13, K14).

-- begin_call: commit the intent of inline calls before their effects.
--   p_items: [{agent_id, turn_id, epoch, call_id, step_id, tool, effect, timeout_seconds, taint, is_trusted, reserve,
--   circuit_breaker: {type, target, failure_threshold, success_threshold, timeout_seconds, half_open_max_calls}, rates:
--   [{kind, name, count, seconds, amount}]}].
--   effect: pure, idempotent, transactional or once; without it once. taint: the untrusted sources that the turn has
--   read, or null. is_trusted: the author of the tool vouches for its results. reserve: {tokens, micros, model_calls,
--   tool_calls}, the most that the call may use of its turn's budgets. circuit_breaker: see
--   14_circuit_breakers.sql. rates: the buckets from which the call takes tokens, see 15_rate_limits.sql. kind: tool,
--   agent, model, model_tokens or route. The bucket of this kind and name is refilled with count tokens in seconds.
--   Returns [{turn_id, call_id, outcome}] in the order of p_items; circuit: {type, target, generation, is_trial} of a
--   call that a breaker has just admitted. rate: {starts_at, wait_seconds} of a call with rates: perform its effect
--   no earlier. After a wait, begin the call again first: another owner may have it by now. 'fresh': perform the
--   effect. The same epoch receives it again, because an owner starts no effect before it has read this answer.
--   'again': an earlier owner began the call, and repeating it is safe, also if that owner waited for its start.
--   A transactional call that is open has not happened, because its effect is committed with its result. 'done', with
--   status and content: the result is recorded. 'in_doubt', with status and content: an earlier owner began a call that
--   must not run twice; its status is now unknown. 'stale'. 'rejected' with code and
--   message: too_many_waits; not_inline, if the id is that of a call for which the turn waits; BUDGET_EXCEEDED, if a
--   budget, which the answer names, lacks the reservation; CIRCUIT_OPEN with circuit: {type, target, state, until,
--   retry_seconds}, if the breaker does not admit the call; RATE_LIMITED with rate: {kind, name, count, seconds,
--   amount, retry_seconds}, if the tokens come after the timeout. retry_seconds: after which such a call may be
--   admitted; null for a call that takes more than the bucket ever has. A rejected call that an earlier owner began
--   remains open, and the next request for it is checked again.
--   raises: see _enter; 22023 for an id without 1 to 200 bytes, an unknown effect, a timeout out of range
--   locks:  the heads, then the runs, then the buckets
create function heliograph.begin_call(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_intents(p_items);
    perform from heliograph.agent_state_head
      where project_id = p_project
        and agent_id = any (array(select i ->> 'agent_id' from jsonb_array_elements(p_items) i))
      order by agent_id for update;
    perform from heliograph.runs
      where project_id = p_project
        and run_id = any (array(select heliograph._run_of(i ->> 'agent_id') from jsonb_array_elements(p_items) i))
      order by run_id for update;
    if heliograph._has_rates(p_items) then
        perform heliograph._lock_rates(p_project, p_items);
    end if;
    return heliograph._begin(p_project, p_items, heliograph._limits(p_project), p_now);
end $$;

-- _check_intents: reject items that begin_call cannot take.
--   raises: 22023 naming the field
create function heliograph._check_intents(p_items jsonb) returns void
    language plpgsql immutable as $$
begin
    perform heliograph._check_calls(p_items);
    if jsonb_path_exists(p_items, '$[*].reserve.type() ? (@ != "null")') then
        perform heliograph._check_amounts(p_items, 'reserve');
    end if;
end $$;

-- _begin: begin the calls of begin_call, or those whose intents record_call has. See begin_call.
--   The caller holds the heads, the runs and the buckets.
create function heliograph._begin(
    p_project text, p_items jsonb, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_doubts jsonb;
    v_reserves constant boolean := jsonb_path_exists(p_items, '$[*].reserve.type() ? (@ != "null")');
    v_has_circuits constant boolean := jsonb_path_exists(p_items, '$[*].circuit_breaker.type() ? (@ != "null")');
    v_has_rates constant boolean := heliograph._has_rates(p_items);
    v_settles boolean;
    v_repeats boolean;
    v_begins boolean;
    v_has_results boolean;
    v_waiting bigint[];
    v_opened jsonb;
    v_answers jsonb;
begin
    with judged as materialized (
        select * from heliograph._judge_begin(p_project, p_items, p_limits.waits_max, p_now)
    ), opened as (
        insert into heliograph.turn_waiting_tools
            (project_id, agent_turn_id, tool_call_id, agent_id, run_id, step_id, tool, kind, effect, epoch, deadline,
             taint, is_trusted, opened_at, opened_seq)
        select p_project, turn_id, call_id, agent_id, run_id, step_id, tool, 'inline', effect, epoch,
               p_now + make_interval(secs => timeout_seconds), taint, is_trusted, p_now,
               (select x.signal_seq + 1 from heliograph.runs x
                 where x.project_id = p_project and x.run_id = judged.run_id)
          from judged where verdict ->> 'outcome' = 'fresh' and wait_at is null and is_first order by n
    ), edge as (
        insert into heliograph.execution_edges
            (project_id, agent_turn_id, primitive, edge_phase, run_id, agent_id, call_id, cause_id, created_at)
        select p_project, turn_id, 'tool_call', 'request', run_id, agent_id, call_id, parent_step_id, p_now
          from judged where verdict ->> 'outcome' = 'fresh' and wait_at is null and is_first order by n
    )
    select jsonb_agg(jsonb_build_object('turn_id', j.turn_id, 'call_id', j.call_id) || j.verdict
                     || case when (v_reserves or v_has_circuits or v_has_rates) and j.wait_at is null and j.is_first
                                  and j.verdict ->> 'outcome' = 'fresh'
                             then jsonb '{"is_new": true}' else '{}' end order by j.n),
           jsonb_agg(jsonb_build_object('turn_id', j.turn_id, 'call_id', j.call_id, 'status', 'unknown', 'error',
                         jsonb_build_object('code', 'IN_DOUBT', 'recoverable', false, 'message',
                             'a worker was lost after it began the call and before it recorded the result'))
                     order by j.n) filter (where j.verdict ->> 'outcome' = 'in_doubt' and j.is_first),
           bool_or(j.verdict ->> 'outcome' = 'in_doubt' and j.reserved is not null),
           bool_or(j.verdict ->> 'outcome' = 'again'), bool_or(j.verdict ->> 'outcome' in ('fresh', 'again')),
           bool_or(j.verdict ->> 'outcome' in ('done', 'in_doubt')),
           array_agg(j.n order by j.n) filter (where j.verdict ->> 'outcome' = 'fresh' and j.is_waiting
                                                  and j.is_first)
      into v_answers, v_doubts, v_settles, v_repeats, v_begins, v_has_results, v_waiting
      from judged j;
    if v_waiting is not null then
        perform heliograph._start_waiting(p_project, p_items, v_waiting, p_now);
    end if;
    if v_doubts is not null then
        perform heliograph._resolve(p_project, v_doubts, octet_length(v_doubts::text), p_limits, true, p_now);
    end if;
    if v_has_results then
        v_answers := heliograph._with_results(p_project, v_answers);
    end if;
    if v_settles then  -- the effect may have happened, so the whole reservation counts as used
        perform heliograph._settle(p_project, d.item ->> 'turn_id', d.item ->> 'call_id', null)
           from jsonb_array_elements(v_doubts) with ordinality d (item, n);
    end if;
    if v_begins and v_has_circuits then
        v_answers := heliograph._admit_inline(p_project, p_items, v_answers, p_now);
    end if;
    if v_begins and (v_reserves or v_has_circuits or v_has_rates) then
        v_opened := v_answers;
        v_answers := heliograph._reserve(p_project, p_items, v_answers);
    end if;
    if v_begins and v_has_rates then
        v_answers := heliograph._take_inline(p_project, p_items, v_opened, v_answers, p_now);
    end if;
    if v_repeats then
        perform heliograph._take_over(p_project, p_items, v_answers);
    end if;
    return coalesce(v_answers, '[]');
end $$;

-- _start_waiting: mark calls that waited for their start and begin now: their effects may happen. p_places: the places
--   of their items.
--   The caller holds the heads.
create function heliograph._start_waiting(p_project text, p_items jsonb, p_places bigint[], p_now timestamptz)
    returns void language sql as $$
    update heliograph.turn_waiting_tools w set rate = w.rate - 'is_waiting'
      from (select x.at
              from unnest(p_places) u (n)
             cross join lateral (select p_items -> (u.n::integer - 1) as item offset 0) i
             cross join lateral (
                   select y.ctid as at, y.rate from heliograph.turn_waiting_tools y
                    where y.project_id = p_project and y.agent_turn_id = i.item ->> 'turn_id'
                      and y.tool_call_id = i.item ->> 'call_id' offset 0) x
             where (x.rate ->> 'starts_at')::timestamptz <= p_now
                or not heliograph._has_rates(jsonb_build_array(i.item))) found
     where w.ctid = found.at
$$;

-- _take_over: write the epoch of this owner into the calls that it begins again. A call that a limit rejects keeps the
--   epoch of its earlier owner. So an owner that lost the answer and repeats its request is checked again, as the first
--   time.
--   p_items: the items of begin_call. p_answers: its answers.
--   The caller holds the heads.
create function heliograph._take_over(p_project text, p_items jsonb, p_answers jsonb) returns void
    language sql as $$
    update heliograph.turn_waiting_tools w
       set epoch = found.epoch, rate = case when found.has_rates then w.rate else w.rate - 'is_waiting' end
      from (select x.at, i.epoch, i.has_rates
              from (select distinct on (p.item ->> 'turn_id', p.item ->> 'call_id')
                           p.item ->> 'turn_id' as turn_id, p.item ->> 'call_id' as call_id,
                           (p.item ->> 'epoch')::bigint as epoch,
                           heliograph._has_rates(jsonb_build_array(p.item)) as has_rates
                      from jsonb_array_elements(p_items) with ordinality p (item, n)
                     where p_answers -> (p.n::integer - 1) ->> 'outcome' = 'again'
                     order by p.item ->> 'turn_id', p.item ->> 'call_id', p.n) i
             cross join lateral (
                   select y.ctid as at from heliograph.turn_waiting_tools y
                    where y.project_id = p_project and y.agent_turn_id = i.turn_id
                      and y.tool_call_id = i.call_id offset 0) x) found
     where w.ctid = found.at
$$;

-- _taint: the untrusted sources in a list; null for none. Not inlined, because most calls have none.
create function heliograph._taint(p_sources jsonb) returns text[]
    language plpgsql immutable strict as $$
begin
    return case when p_sources not in ('[]', 'null')
                then array(select t.source from jsonb_array_elements_text(p_sources) with ordinality t (source, n)
                            order by t.n) end;
end $$;

-- _judge_begin: each item of begin_call with its verdict, its head and the wait that it may have already. is_first: the
--   item is the first one of its call. The caller holds the heads.
create function heliograph._judge_begin(
    p_project text, p_items jsonb, p_waits_max integer, p_now timestamptz
) returns table (
    n bigint, turn_id text, call_id text, step_id text, tool text, effect text, epoch bigint, timeout_seconds float8,
    taint text[], is_trusted boolean, agent_id text, run_id text, parent_step_id text, wait_at tid, reserved jsonb,
    is_waiting boolean, is_first boolean, verdict jsonb
) language sql stable as $$
    select i.n, i.item ->> 'turn_id', i.item ->> 'call_id', i.item ->> 'step_id', i.item ->> 'tool',
           coalesce(i.item ->> 'effect', 'once'), (i.item ->> 'epoch')::bigint,
           (i.item ->> 'timeout_seconds')::float8, heliograph._taint(i.item -> 'taint'),
           coalesce((i.item ->> 'is_trusted')::boolean, false), h.agent_id, h.run_id, h.parent_step_id, w.at,
           w.reserved, w.rate ? 'is_waiting',
           -- partitioned by the owner as well: a stale item before it opens nothing
           row_number() over (partition by i.item ->> 'turn_id', i.item ->> 'call_id', h.agent_id order by i.n) = 1,
           case when h.agent_id is null then '{"outcome": "stale"}'
                when w.at is null and row_number() over (partition by h.agent_id order by i.n) + o.known > p_waits_max
                then heliograph._reject_waits(
                         row_number() over (partition by h.agent_id order by i.n) + o.known, p_waits_max)
                when w.at is null and i.item ? 'circuit_breaker'
                then coalesce(heliograph._reject_if_open(p_project, i.item -> 'circuit_breaker', p_now),
                              '{"outcome": "fresh"}')  -- a rejection by an open breaker writes nothing
                when w.at is null then '{"outcome": "fresh"}'
                when w.state = 'resolved' then '{"outcome": "done"}'
                when w.kind <> 'inline' then heliograph._rejection('not_inline',
                         format('the turn waits for call %s of kind %s: give each call of a turn its own id',
                                i.item ->> 'call_id', w.kind))
                when w.epoch = (i.item ->> 'epoch')::bigint then '{"outcome": "fresh"}'
                when w.effect in ('pure', 'idempotent', 'transactional') then '{"outcome": "again"}'
                when w.rate ? 'is_waiting' then '{"outcome": "again"}'
                else '{"outcome": "in_doubt"}' end
      from jsonb_array_elements(p_items) with ordinality i (item, n)
      left join lateral (
           select x.agent_id, x.run_id, heliograph._signal_id(x.run_id, x.activation_seq) as parent_step_id
             from heliograph.agent_state_head x
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
$$;

-- _with_results: results of begin_call; those that are done or in doubt with the status and the content that are
--   recorded.
create function heliograph._with_results(p_project text, p_answers jsonb) returns jsonb
    language sql stable as $$
    select jsonb_agg(a.item || coalesce(w.result, '{}') order by a.n)
      from jsonb_array_elements(p_answers) with ordinality a (item, n)
      left join lateral (
           select jsonb_build_object('status', x.status, 'content', heliograph._content(p_project, c.content)) as result
             from heliograph.turn_waiting_tools x
             left join heliograph.cards c on c.project_id = p_project and c.card_id = x.result_card_id
            where a.item ->> 'outcome' in ('done', 'in_doubt') and x.project_id = p_project
              and x.agent_turn_id = a.item ->> 'turn_id' and x.tool_call_id = a.item ->> 'call_id' offset 0) w on true
$$;
