-- Beginning inline calls: an owner commits the intent of an effect before the effect happens, so that the
-- records show the next owner which calls may be repeated (K13, K14).

-- begin_call: commit the intent of inline calls before their effects.
--   p_items: {agent_id, turn_id, epoch, call_id, step_id, tool, effect, timeout_seconds, taint, is_trusted, reserve,
--   circuit_breaker: {type, target, failure_threshold, success_threshold, timeout_seconds, half_open_max_calls}, rates:
--   [{kind, name, count, seconds, amount}]}, as one array for each key.
--   effect: pure, idempotent, transactional or once; without it once. taint: the untrusted sources that the turn has
--   read, or null. is_trusted: the author of the tool vouches for its results. reserve: {tokens, micros, model_calls,
--   tool_calls}, the most that the call may use of its turn's budgets. circuit_breaker: see
--   14_circuit_breakers.sql. rates: the buckets from which the call takes tokens, see 15_rate_limits.sql. kind: tool,
--   agent, model, model_tokens or route. The bucket of this kind and name is refilled with count tokens in seconds.
--   Returns rows {turn_id, call_id, outcome, code, message, status, content, budget, circuit, rate} in the order of the
--   items. circuit: {type, target, generation, is_trial} of a call that a breaker has just admitted. rate: {starts_at,
--   wait_seconds} of a call with rates: perform its effect no earlier. After a wait, begin the call again first:
--   another owner may have it by now. 'fresh': perform the effect. The same epoch receives it again, because an owner
--   starts no effect before it has read this answer. 'again': an earlier owner began the call, and repeating it is
--   safe, also if that owner waited for its start. A transactional call that is open has not happened, because its
--   effect is committed with its result. 'done', with status and content: the result is recorded. 'in_doubt', with
--   status and content: an earlier owner began a call that must not run twice; its status is now unknown. 'stale'.
--   'rejected' with code and message: too_many_waits; not_inline, if the id is that of a call for which the turn waits;
--   BUDGET_EXCEEDED, if a budget, which the answer names, lacks the reservation; CIRCUIT_OPEN with circuit: {type,
--   target, state, until, retry_seconds}, if the breaker does not admit the call; RATE_LIMITED with rate: {kind, name,
--   count, seconds, amount, retry_seconds}, if the tokens come after the timeout. retry_seconds: after which such a
--   call may be admitted; null for a call that takes more than the bucket ever has. A rejected call that an earlier
--   owner began remains open, and the next request for it is checked again.
--   raises: see _enter; 22023 for arrays of the wrong shape, an id without 1 to 200 bytes, an unknown effect, a
--           timeout out of range
--   locks:  the heads, then the runs, then the buckets
create function heliograph.begin_call(
    p_project text, p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_call_id text[], p_step_id text[],
    p_tool text[], p_effect text[], p_timeout_seconds float8[], p_taint jsonb[], p_is_trusted boolean[],
    p_reserve jsonb[], p_circuit_breaker jsonb[], p_rates jsonb[], p_now timestamptz
) returns table (
    turn_id text, call_id text, outcome text, code text, message text, status text, content jsonb, budget jsonb,
    circuit jsonb, rate jsonb
) language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_calls heliograph.new_call[] := '{}';
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_agent_id), heliograph._shape(p_turn_id), heliograph._shape(p_epoch),
        heliograph._shape(p_call_id), heliograph._shape(p_step_id), heliograph._shape(p_tool),
        heliograph._shape(p_effect), heliograph._shape(p_timeout_seconds), heliograph._shape(p_taint),
        heliograph._shape(p_is_trusted), heliograph._shape(p_reserve), heliograph._shape(p_circuit_breaker),
        heliograph._shape(p_rates)]);
    perform heliograph._check_columns(p_taint || p_reserve || p_circuit_breaker || p_rates);
    for n in 1 .. cardinality(p_call_id) loop
        v_calls[n] := row(p_agent_id[n], p_turn_id[n], p_epoch[n], p_call_id[n], p_step_id[n], p_tool[n], p_effect[n],
                          p_timeout_seconds[n], nullif(p_taint[n], 'null'), p_is_trusted[n],
                          nullif(p_reserve[n], 'null'), nullif(p_circuit_breaker[n], 'null'),
                          nullif(p_rates[n], 'null'))::heliograph.new_call;
    end loop;
    perform heliograph._check_new_calls(v_calls);
    perform heliograph._lock_heads(p_project, p_agent_id);
    perform heliograph._lock_runs(p_project, heliograph._runs_of(p_agent_id));
    if array_remove(p_rates, null) <> '{}' then
        perform heliograph._lock_rates(p_project, to_jsonb(v_calls));
    end if;
    return query
    select p_turn_id[a.n], p_call_id[a.n], a.answer ->> 'outcome', a.answer ->> 'code', a.answer ->> 'message',
           a.answer ->> 'status', a.answer -> 'content', a.answer -> 'budget', a.answer -> 'circuit', a.answer -> 'rate'
      from unnest(heliograph._begin(p_project, v_calls, heliograph._limits(p_project), p_now)) with ordinality
           a (answer, n) order by a.n;
end $$;

-- _check_new_calls: reject calls that begin_call cannot take.
--   raises: 22023 naming the field
create function heliograph._check_new_calls(p_calls heliograph.new_call[]) returns void
    language plpgsql immutable as $$
declare
    v_call heliograph.new_call;
    v_wrong text;
begin
    foreach v_call in array p_calls loop
        v_wrong := case
            when heliograph._wrong_id('', v_call.call_id) is not null
            then heliograph._wrong_id('a call id', v_call.call_id)
            when (octet_length(v_call.tool) between 1 and 200) is not true
            then 'the tool of a call must have 1 to 200 bytes'
            when octet_length(v_call.step_id) > 200 then 'a step id must have at most 200 bytes'
            when v_call.effect not in ('pure', 'idempotent', 'transactional', 'once')
            then 'an effect must be pure, idempotent, transactional or once'
            when v_call.timeout_seconds not between 0 and 31622400
            then 'timeout_seconds must be between 0 and 366 days, or null'
            when v_call.taint is not null or v_call.reserve is not null or v_call.circuit_breaker is not null
                 or v_call.rates is not null
            then heliograph._wrong_guards(v_call) end;
        if v_wrong is not null then
            raise exception using errcode = '22023', message = v_wrong;
        end if;
    end loop;
end $$;

-- _wrong_guards: null, or the problem of the JSON of a call: its taint, its reservation, its breaker and its rates.
create function heliograph._wrong_guards(p_call heliograph.new_call) returns text
    language plpgsql immutable as $$
begin
    return coalesce(
        case when jsonb_typeof(p_call.taint) <> 'array'
             then heliograph._other_type('p_items[]', to_jsonb(p_call), 'taint', 'array') end,
        heliograph._wrong_circuit('p_items[].circuit_breaker', coalesce(p_call.circuit_breaker, 'null')),
        heliograph._wrong_rates('p_items[].rates', coalesce(p_call.rates, 'null')),
        heliograph._wrong_amounts('reserve', coalesce(p_call.reserve, 'null')));
end $$;

-- _begin: begin the calls of begin_call, or those whose intents record_call has. Returns the answers, apart from the
--   ids. See begin_call.
--   The caller holds the heads, the runs and the buckets.
create function heliograph._begin(
    p_project text, p_calls heliograph.new_call[], p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb[] language plpgsql as $$
declare
    v_judged heliograph.judged_call[];
    v_call heliograph.judged_call;
    v_outcome text;
    v_turn_id text; v_call_id text;  -- of the item before
    v_answers jsonb[] := array_fill(null::jsonb, array[cardinality(p_calls)]);
    v_opens boolean[] := array_fill(false, array[cardinality(p_calls)]);
    v_opened heliograph.judged_call[] := '{}';
    v_waiting integer[] := '{}'; v_doubts integer[] := '{}';  -- the places of their items
    v_begins boolean := false; v_is_guarded boolean := false; v_repeats boolean := false;
    v_has_results boolean := false;
begin
    select array_agg(row(j.*)::heliograph.judged_call) into v_judged
      from (select * from heliograph._judge_begin(p_project, p_calls, p_limits.waits_max, p_now) x
             order by x.turn_id, x.call_id, x.place) j;
    foreach v_call in array coalesce(v_judged, '{}') loop
        v_outcome := v_call.verdict ->> 'outcome';
        v_answers[v_call.place] := v_call.verdict;
        continue when v_outcome = 'stale';  -- before another item of its call it opens nothing
        v_begins := v_begins or v_outcome in ('fresh', 'again');
        v_is_guarded := v_is_guarded or v_call.is_guarded;
        v_repeats := v_repeats or v_outcome = 'again';
        v_has_results := v_has_results or v_outcome in ('done', 'in_doubt');
        -- the items of one call are side by side: only the first one opens it
        continue when (v_call.turn_id, v_call.call_id) is not distinct from (v_turn_id, v_call_id);
        v_turn_id := v_call.turn_id;
        v_call_id := v_call.call_id;
        if v_outcome = 'fresh' and v_call.wait_at is null then
            v_opened := v_opened || v_call;
            v_opens[v_call.place] := true;
        elsif v_outcome = 'fresh' and v_call.is_waiting then
            v_waiting := v_waiting || v_call.place;
        elsif v_outcome = 'in_doubt' then
            v_doubts := v_doubts || v_call.place;
        end if;
    end loop;
    if v_opened <> '{}' then
        perform heliograph._open_begun(p_project, v_opened, p_now);
    end if;
    if v_waiting <> '{}' then
        perform heliograph._start_waiting(p_project, p_calls, v_waiting, p_now);
    end if;
    if v_doubts <> '{}' then
        perform heliograph._doubt(p_project, p_calls, v_doubts, p_limits, p_now);
    end if;
    if v_has_results then
        v_answers := heliograph._with_results(p_project, p_calls, v_answers);
    end if;
    if v_begins and v_is_guarded then
        v_answers := heliograph._admit_inline(p_project, p_calls, v_opens, v_answers, p_now);
        v_answers := heliograph._reserve(p_project, p_calls, v_opens, v_answers);
        v_answers := heliograph._take_inline(p_project, p_calls, v_opens, v_answers, p_now);
    end if;
    if v_repeats then
        perform heliograph._take_over(p_project, p_calls, v_answers);
    end if;
    return v_answers;
end $$;

-- _open_begun: open the calls that begin.
--   The caller holds the heads and the runs.
create function heliograph._open_begun(p_project text, p_calls heliograph.judged_call[], p_now timestamptz)
    returns void language plpgsql as $$
begin
    insert into heliograph.turn_waiting_tools
        (project_id, agent_turn_id, tool_call_id, step_id, tool, kind, effect, epoch, deadline, taint, is_trusted,
         opened_at, opened_seq)
    select p_project, c.turn_id, c.call_id, c.step_id, c.tool, 'inline', c.effect, c.epoch,
           p_now + make_interval(secs => c.timeout_seconds), heliograph._taint(c.taint), c.is_trusted, p_now,
           c.opened_seq
      from unnest(p_calls) c order by c.place;
end $$;

-- _start_waiting: mark calls that waited for their start and begin now: their effects may happen. p_places: of these
--   calls.
--   The caller holds the heads.
create function heliograph._start_waiting(
    p_project text, p_calls heliograph.new_call[], p_places integer[], p_now timestamptz
) returns void language sql as $$
    update heliograph.turn_waiting_tools w set rate = w.rate - 'is_waiting'
      from (select x.at
              from unnest(p_places) n
             cross join lateral (
                   select y.ctid as at, y.rate from heliograph.turn_waiting_tools y
                    where y.project_id = p_project and y.agent_turn_id = p_calls[n].turn_id
                      and y.tool_call_id = p_calls[n].call_id offset 0) x
             where (x.rate ->> 'starts_at')::timestamptz <= p_now
                or jsonb_path_exists(p_calls[n].rates, '$[*].kind') is not true) found
     where w.ctid = found.at
$$;

-- _doubt: end calls that an earlier owner began and that must not run twice: their status is unknown. p_places: of
--   these calls.
--   The caller holds the heads and the runs.
create function heliograph._doubt(
    p_project text, p_calls heliograph.new_call[], p_places integer[], p_limits heliograph.project_limits,
    p_now timestamptz
) returns void language plpgsql as $$
declare
    v_error constant jsonb := '{"code": "IN_DOUBT", "recoverable": false, "message": '
        '"a worker was lost after it began the call and before it recorded the result"}';
    v_results constant heliograph.call_result[] := array(
        select (p_calls[n].turn_id, p_calls[n].call_id, 'unknown', null, v_error, null, null, null, null, null, null,
                null, null)::heliograph.call_result
          from unnest(p_places) n order by n);
begin
    perform heliograph._resolve(p_project, v_results, octet_length(v_error::text), p_limits, p_now);
    -- the effect may have happened, so a reservation counts as used
    perform heliograph._settle(p_project, p_calls[n].turn_id, p_calls[n].call_id, null) from unnest(p_places) n;
end $$;

-- _take_over: write the epoch of this owner into the calls that it begins again. A call that a limit rejects keeps the
--   epoch of its earlier owner. So an owner that lost the answer and repeats its request is checked again, as the first
--   time.
--   The caller holds the heads.
create function heliograph._take_over(p_project text, p_calls heliograph.new_call[], p_answers jsonb[]) returns void
    language sql as $$
    update heliograph.turn_waiting_tools w
       set epoch = found.epoch, rate = case when found.has_rates then w.rate else w.rate - 'is_waiting' end
      from (select x.at, i.epoch, i.has_rates
              from (select distinct on (c.turn_id, c.call_id) c.turn_id, c.call_id, c.epoch,
                           jsonb_path_exists(c.rates, '$[*].kind') as has_rates
                      from unnest(p_calls) with ordinality c
                     where p_answers[c.ordinality] ->> 'outcome' = 'again'
                     order by c.turn_id, c.call_id, c.ordinality) i
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

-- _reject_too_many: null, or the rejection of a new call that its turn has no room for. p_place: of this call. p_known:
--   the number of the turn's calls. Each item of the turn up to this one counts, also one of a known call.
create function heliograph._reject_too_many(
    p_calls heliograph.new_call[], p_place bigint, p_known bigint, p_waits_max integer
) returns jsonb language plpgsql immutable as $$
declare
    v_call heliograph.new_call := p_calls[p_place];
    v_count constant bigint := p_known + (
        select count(*) from unnest(p_calls) with ordinality c
         where c.ordinality <= p_place
           and (c.agent_id, c.turn_id, c.epoch) = (v_call.agent_id, v_call.turn_id, v_call.epoch));
begin
    return case when v_count > p_waits_max then heliograph._reject_waits(v_count, p_waits_max) end;
end $$;

-- _judge_begin: each item of begin_call with its verdict, and the call that it may have already.
--   The caller holds the heads and the runs.
create function heliograph._judge_begin(
    p_project text, p_calls heliograph.new_call[], p_waits_max integer, p_now timestamptz
) returns setof heliograph.judged_call language sql stable as $$
    select c.ordinality::integer, c.turn_id, c.call_id, c.step_id, c.tool,
           coalesce(c.effect, 'once'), c.epoch, c.timeout_seconds, c.taint, coalesce(c.is_trusted, false),
           r.signal_seq + 1, w.at, w.rate ? 'is_waiting',
           c.reserve is not null or c.circuit_breaker is not null or c.rates is not null,
           case when h.run_id is null then '{"outcome": "stale"}'
                when w.at is null
                then coalesce(
                    case when o.known + cardinality(p_calls) > p_waits_max
                         then heliograph._reject_too_many(p_calls, c.ordinality, o.known, p_waits_max) end,
                    case when c.circuit_breaker is not null  -- a rejection by an open breaker writes nothing
                         then heliograph._reject_if_open(p_project, c.circuit_breaker, p_now) end,
                    '{"outcome": "fresh"}')
                when w.state = 'resolved' then '{"outcome": "done"}'
                when w.kind <> 'inline' then heliograph._rejection('not_inline',
                         format('the turn waits for call %s of kind %s: give each call of a turn its own id',
                                c.call_id, w.kind))
                when w.epoch = c.epoch then '{"outcome": "fresh"}'
                when w.effect in ('pure', 'idempotent', 'transactional') then '{"outcome": "again"}'
                when w.rate ? 'is_waiting' then '{"outcome": "again"}'
                else '{"outcome": "in_doubt"}' end
      from unnest(p_calls) with ordinality c
      left join lateral (
           select x.run_id from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = c.agent_id and x.status = 'running'
              and x.active_agent_turn_id = c.turn_id and x.turn_epoch = c.epoch offset 0) h on true
      left join lateral (
           select x.signal_seq from heliograph.runs x
            where x.project_id = p_project and x.run_id = h.run_id offset 0) r on true
      left join lateral (
           select x.ctid as at, x.state, x.kind, x.epoch, x.effect, x.rate from heliograph.turn_waiting_tools x
            where h.run_id is not null and x.project_id = p_project and x.agent_turn_id = c.turn_id
              and x.tool_call_id = c.call_id offset 0) w on true
      left join lateral (
           select count(*) as known from heliograph.turn_waiting_tools x
            where w.at is null and h.run_id is not null and x.project_id = p_project
              and x.agent_turn_id = c.turn_id offset 0) o on true
$$;

-- _with_results: the answers of begin_call; those that are done or in doubt with the status and the content that are
--   recorded.
create function heliograph._with_results(p_project text, p_calls heliograph.new_call[], p_answers jsonb[])
    returns jsonb[] language sql stable as $$
    select array_agg(p_answers[c.ordinality] || coalesce(w.result, '{}') order by c.ordinality)
      from unnest(p_calls) with ordinality c
      left join lateral (
           select jsonb_build_object('status', x.status, 'content', heliograph._content(p_project, k.content)) as result
             from heliograph.turn_waiting_tools x
             left join heliograph.cards k
                    on k.project_id = p_project and k.card_id = heliograph._result_id(c.turn_id, c.call_id)
            where p_answers[c.ordinality] ->> 'outcome' in ('done', 'in_doubt') and x.project_id = p_project
              and x.agent_turn_id = c.turn_id and x.tool_call_id = c.call_id offset 0) w on true
$$;
