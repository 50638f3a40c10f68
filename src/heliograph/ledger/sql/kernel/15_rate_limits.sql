-- Rate limits: token buckets that all workers share (RTE-08, G-24).
--
-- A bucket of `count` tokens is refilled with `count` tokens in `seconds`. A call takes tokens from all its buckets at
-- one instant, its start. The commit that begins the call sets the start, which may lie in the future, so no connection
-- and no lock waits. A call whose start would be after its timeout is rejected and takes no token.
--
-- A bucket is one instant: full_at, at which it is full if no more tokens are taken. Times are whole nanoseconds since
-- 1970, and the time of one token is rounded up. So no window has more than `count` tokens plus the refill. The
-- settings come with each call. The amount of a model's tokens is an estimate, which the result corrects. Tokens that a
-- call gives back count from its start. Had the call not taken them, the bucket might have been full since then, and
-- they would have been lost. So `peaks` has the distance from full just before each start: a call gives back at most
-- the least distance at the starts after its own.
--
-- A row of a bucket is locked after the heads and the runs, in the order of kind and name, and before blobs.

-- _wrong_rates: null, or the problem of the rate limits of a call.
create function heliograph._wrong_rates(p_path text, p_rates jsonb) returns text
    language sql immutable as $$
    select case when jsonb_typeof(p_rates) = 'null' then null
                when jsonb_typeof(p_rates) <> 'array' or jsonb_array_length(p_rates) > 8
                then p_path || ' must be an array of at most 8 rates'
                else coalesce(
        (select min(coalesce(
                    case when jsonb_typeof(r) <> 'object' then p_path || '[] must be an object' end,
                    heliograph._wrong_keys(p_path || '[]', r, '{kind,name,count,seconds,amount}'),
                    case when not coalesce(r ->> 'kind' in ('tool', 'agent', 'model', 'model_tokens', 'route'), false)
                         then p_path || '[].kind must be tool, agent, model, model_tokens or route'
                         when not coalesce(jsonb_typeof(r -> 'name') = 'string'
                                           and octet_length(r ->> 'name') between 1 and 200, false)
                         then p_path || '[].name must have 1 to 200 bytes' end,
                    (select min(p_path || '[].' || k.key || ' must be a whole number from 1 to ' || k.most)
                       from (values ('amount', 1000000000), ('count', 1000000000), ('seconds', 3600)) k (key, most)
                      where not coalesce(case jsonb_typeof(r -> k.key) when 'number'
                                         then (r -> k.key)::numeric between 1 and k.most
                                              and (r -> k.key)::numeric % 1 = 0 end, false))))
           from jsonb_array_elements(p_rates) r),
        case when jsonb_array_length(p_rates) > (select count(distinct (r -> 'kind', r -> 'name'))
                                                   from jsonb_array_elements(p_rates) r)
             then p_path || ' names a bucket twice' end) end
$$;

-- _rates: the rates of one call. interval_ns: the time in which one token is refilled.
create function heliograph._rates(p_rates jsonb) returns table (
    kind text, name text, count bigint, seconds bigint, amount bigint, interval_ns bigint
) language sql immutable as $$
    select r.kind, r.name, r.count::bigint, r.seconds::bigint, r.amount::bigint,
           (r.seconds::bigint * 1000000000 + r.count::bigint - 1) / r.count::bigint
      from jsonb_to_recordset(p_rates) as r (kind text, name text, count numeric, seconds numeric, amount numeric)
$$;

-- _nanoseconds: a time in nanoseconds since 1970.
create function heliograph._nanoseconds(p_at timestamptz) returns bigint
    language sql stable as $$ select (extract(epoch from p_at) * 1000000)::bigint * 1000 $$;

-- _refill_ns: the time in which a bucket refills one token, by the limit of its last call.
create function heliograph._refill_ns(p_bucket heliograph.rate_buckets) returns bigint
    language sql immutable as $$
    select (p_bucket.seconds::bigint * 1000000000 + p_bucket.tokens_max - 1) / p_bucket.tokens_max
$$;

-- _full_at: the time at which a bucket is full for a call with this limit. If the last call had another limit, the
--   bucket is at worst empty once the waiting calls have started. So a raised limit counts at once.
create function heliograph._full_at(
    p_bucket heliograph.rate_buckets, p_count bigint, p_seconds bigint, p_interval bigint, p_now bigint
) returns bigint language sql immutable as $$
    select case when (p_bucket.tokens_max, p_bucket.seconds) = (p_count, p_seconds) then p_bucket.full_at
                else least(p_bucket.full_at, greatest(p_bucket.last_start, p_now) + p_count * p_interval) end
$$;

-- _has_rates: whether one of these items of begin_call, or calls of suspend, has rate limits.
create function heliograph._has_rates(p_items jsonb) returns boolean
    language sql immutable as $$
    select jsonb_path_exists(p_items, '$[*].rates[*].kind')
$$;

-- _lock_rates: lock the buckets of these items of begin_call, or lists of calls of suspend, one after another; create
--   those that have no row. prune may delete a bucket before it is locked: then it is created again, before the next
--   one is locked.
--   locks:  the buckets; the caller holds the heads and the runs
create function heliograph._lock_rates(p_project text, p_items jsonb) returns void
    language plpgsql as $$
declare
    v_rates constant jsonb := jsonb_path_query_array(p_items, '$[*].rates[*] ? (@.kind != null)');
    v_rate record;
begin
    for v_rate in
        select r.kind, r.name, min(r.count) as count, min(r.seconds) as seconds from heliograph._rates(v_rates) r
         group by r.kind, r.name order by r.kind collate "C", r.name collate "C"
    loop
        loop
            perform from heliograph.rate_buckets b
             where b.project_id = p_project and b.kind = v_rate.kind and b.name = v_rate.name
             order by b.kind, b.name for update;
            exit when found;
            insert into heliograph.rate_buckets
                (project_id, kind, name, tokens_max, seconds, full_at, last_start, peaks)
            values (p_project, v_rate.kind, v_rate.name, v_rate.count, v_rate.seconds, 0, 0, '[]')
            on conflict do nothing;
        end loop;
    end loop;
end $$;

-- _reject_rate: the rejection of a call by a bucket. p_timeout_seconds: of the call; null: it has none. p_retry: the
--   seconds after which such a call is not rejected if others take no tokens; null: it takes more tokens than the
--   bucket ever has.
create function heliograph._reject_rate(
    p_rate jsonb, p_timeout_seconds float8, p_wait numeric, p_retry numeric
) returns jsonb language sql stable as $$
    select heliograph._rejection('RATE_LIMITED', case when p_retry is null
               then format('the call needs %s tokens, and the rate limit of %s %s is %s in %s s: raise the limit',
                           p_rate ->> 'amount', p_rate ->> 'kind', p_rate ->> 'name', p_rate ->> 'count',
                           p_rate ->> 'seconds')
               else format('the rate limit of %s %s is %s in %s s, and the call would wait %s s, longer than %s',
                           p_rate ->> 'kind', p_rate ->> 'name', p_rate ->> 'count', p_rate ->> 'seconds',
                           ceil(p_wait), case when p_timeout_seconds is null
                               then 'the hour that a call without a timeout waits: make fewer calls, raise the limit, '
                                    'or set a longer timeout'
                               else 'its timeout: make fewer calls, or raise the limit or the timeout' end) end)
           || jsonb_build_object('rate', p_rate || jsonb_build_object('retry_seconds', p_retry))
$$;

-- _take_tokens: give a call its start, and take its tokens, or reject it.
--   Returns {rate: {starts_at, rates}}, which the call keeps, or a rejection. A call without a timeout waits for at
--   most an hour.
--   The caller holds the buckets.
create function heliograph._take_tokens(
    p_project text, p_rates jsonb, p_timeout_seconds float8, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_now constant bigint := heliograph._nanoseconds(p_now);
    v_last constant bigint := heliograph._nanoseconds(
        p_now + make_interval(secs => coalesce(p_timeout_seconds, 3600)));
    v_start bigint;
    v_rate jsonb;
begin
    select r.start, jsonb_build_object('kind', r.kind, 'name', r.name, 'count', r.count, 'seconds', r.seconds,
                                       'amount', r.amount)
      into v_start, v_rate
      from (select x.*, case when x.amount <= x.count  -- whole microseconds, because a timestamp has no more
                   then (greatest(v_now, heliograph._full_at(b, x.count, x.seconds, x.interval_ns, v_now)
                                             + (x.amount - x.count) * x.interval_ns) + 999) / 1000 * 1000
                   end as start
              from heliograph._rates(p_rates) x
              join heliograph.rate_buckets b on b.project_id = p_project and b.kind = x.kind and b.name = x.name) r
     order by r.start desc nulls first, r.kind collate "C", r.name collate "C" limit 1;
    if v_start is null then
        return heliograph._reject_rate(v_rate, p_timeout_seconds, null, null);
    elsif v_start > v_last then
        return heliograph._reject_rate(v_rate, p_timeout_seconds, ((v_start - v_now) / 1000)::numeric / 1000000,
                                       ((v_start - v_last) / 1000)::numeric / 1000000);
    end if;
    update heliograph.rate_buckets b
       set tokens_max = r.count, seconds = r.seconds,
           peaks = case when r.kind = 'model_tokens'  -- the others give nothing back
                        then heliograph._peaks(f.peaks, v_start, r.amount * r.interval_ns, v_start,
                                               greatest(f.full_at - v_start, 0)) else '[]' end,
           last_start = greatest(b.last_start, v_start),
           last_day = greatest(b.last_start, v_start) / 86400000000000,
           full_at = greatest(f.full_at, v_start) + r.amount * r.interval_ns
      from heliograph._rates(p_rates) r
     cross join lateral (
           select y.ctid as at, heliograph._full_at(y, r.count, r.seconds, r.interval_ns, v_now) as full_at,
                  case r.kind when 'model_tokens'
                      then heliograph._peaks_for(y, r.count, r.seconds, r.interval_ns) end as peaks
             from heliograph.rate_buckets y
            where y.project_id = p_project and y.kind = r.kind and y.name = r.name offset 0) f
     where b.ctid = f.at;
    return jsonb_build_object('rate', jsonb_build_object(
        'starts_at', p_now + (v_start - v_now) / 1000 * interval '1 microsecond', 'rates', p_rates));
end $$;

-- _peaks: change the peaks of a bucket: those after p_after are farther from full by p_change, and one is added at
--   p_at, unless it is null. A peak that a later one undercuts has no effect, so it is removed. The oldest of more than
--   100 are joined.
create function heliograph._peaks(
    p_peaks jsonb, p_after bigint, p_change bigint, p_at bigint, p_distance bigint
) returns jsonb language sql immutable as $$
    with peak as (
        select (p -> 0)::bigint as at,
               least((p -> 1)::bigint + case when (p -> 0)::bigint > p_after then p_change else 0 end,
                     8000000000000000000) as distance
          from jsonb_array_elements(p_peaks) p
        union all
        select p_at, p_distance where p_at is not null
    ), ranked as (
        select at, distance, min(distance) over (order by at desc, distance
                                                 rows between unbounded preceding and 1 preceding) as later from peak
    ), kept as (
        select at, distance, row_number() over (order by at desc) as n from ranked
         where later is null or distance < later
    )
    select coalesce(jsonb_agg(jsonb_build_array(k.at, case k.n when 100 then k.least else k.distance end) order by k.at)
                        filter (where k.n <= 100), '[]')
      from (select *, min(distance) over () as least from kept) k
$$;

-- _peaks_for: the peaks of a bucket for a call with this limit; see _full_at.
create function heliograph._peaks_for(
    p_bucket heliograph.rate_buckets, p_count bigint, p_seconds bigint, p_interval bigint
) returns jsonb language sql immutable as $$
    select case when (p_bucket.tokens_max, p_bucket.seconds) = (p_count, p_seconds) then p_bucket.peaks else (
        select coalesce(jsonb_agg(jsonb_build_array(
                   p.item -> 0, least((p.item -> 1)::bigint, p_count * p_interval)) order by p.n), '[]')
          from jsonb_array_elements(p_bucket.peaks) with ordinality p (item, n)) end
$$;

-- _rate_answer: the rate in the answer of begin_call: the start of the call, and the seconds until then.
create function heliograph._rate_answer(p_rate jsonb, p_now timestamptz) returns jsonb
    language sql stable as $$
    select jsonb_build_object('starts_at', p_rate -> 'starts_at', 'wait_seconds', greatest(
               extract(epoch from (p_rate ->> 'starts_at')::timestamptz - p_now), 0))
$$;

-- _take_inline: take the tokens of the calls that begin_call admits. A call that begins again takes tokens again,
--   because an earlier owner may have made it.
--   p_opened: whether begin_call has just opened the call. p_answers: its answers so far. Returns p_answers. A new call
--   that is rejected is not open.
--   The caller holds the heads, the runs and the buckets.
create function heliograph._take_inline(
    p_project text, p_calls heliograph.new_call[], p_opened boolean[], p_answers jsonb[], p_now timestamptz
) returns jsonb[] language plpgsql as $$
declare
    v_call heliograph.new_call;
    v_name text;
    v_outcome text;
    v_taken jsonb;
    v_rejected jsonb := '{}';
begin
    for n in 1 .. cardinality(p_calls) loop
        v_call := p_calls[n];
        v_name := jsonb_build_array(v_call.turn_id, v_call.call_id)::text;
        v_outcome := p_answers[n] ->> 'outcome';
        v_taken := case when v_outcome <> 'stale' then v_rejected -> v_name end;
        if v_taken is null and v_call.rates <> '[]' and v_outcome in ('fresh', 'again') then
            if p_opened[n] or v_outcome = 'again' then
                v_taken := heliograph._take_tokens(p_project, v_call.rates, v_call.timeout_seconds, p_now);
                update heliograph.turn_waiting_tools
                   set rate = v_taken -> 'rate' || case when (v_taken #>> '{rate,starts_at}')::timestamptz > p_now
                                                        then jsonb '{"is_waiting": true}' else '{}' end
                 where v_taken ->> 'outcome' is null and project_id = p_project
                   and agent_turn_id = v_call.turn_id and tool_call_id = v_call.call_id;
                perform heliograph._shift_trial(p_project, v_call.turn_id, v_call.call_id, w.circuit, v_taken -> 'rate',
                                                p_now)
                   from heliograph.turn_waiting_tools w
                  where w.project_id = p_project and w.agent_turn_id = v_call.turn_id
                    and w.tool_call_id = v_call.call_id and (w.circuit -> 'is_trial')::boolean;
            else
                v_taken := (select jsonb_build_object('rate', w.rate) from heliograph.turn_waiting_tools w
                             where w.project_id = p_project and w.agent_turn_id = v_call.turn_id
                               and w.tool_call_id = v_call.call_id and w.rate is not null);
            end if;
            if v_taken ->> 'outcome' = 'rejected' then
                perform heliograph._unbegin(p_project, v_call.turn_id, v_call.call_id, p_opened[n]);
                v_rejected := v_rejected || jsonb_build_object(v_name, v_taken);
            elsif v_taken is not null then
                v_taken := jsonb_build_object('rate', heliograph._rate_answer(v_taken -> 'rate', p_now));
            end if;
        end if;
        p_answers[n] := case when v_taken ->> 'outcome' = 'rejected' then p_answers[n] - 'circuit'
                             else p_answers[n] end || coalesce(v_taken, '{}');
    end loop;
    return p_answers;
end $$;

-- _unbegin: release the trial and the reservation of a call that begins now, and close it if it is new. A call that
--   began before keeps an empty reservation as a mark of that; see _reserve_call. It stays open without the mark of its
--   breaker, so its rejection does not count as a failure of the target.
--   The caller holds the head and the run.
create function heliograph._unbegin(p_project text, p_turn_id text, p_call_id text, p_is_new boolean) returns void
    language plpgsql as $$
declare
    v_wait heliograph.turn_waiting_tools;
begin
    select * into v_wait from heliograph.turn_waiting_tools
     where project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
    if v_wait.reserved is not null then
        perform heliograph._settle(p_project, p_turn_id, p_call_id,
                                   '{"tokens": 0, "micros": 0, "model_calls": 0, "tool_calls": 0}');
        update heliograph.turn_waiting_tools set reserved = '{}'
         where project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
    end if;
    perform heliograph._release_trials(p_project, p_turn_id, jsonb_build_array(
                jsonb_build_object('call_id', p_call_id, 'circuit', v_wait.circuit)));
    perform heliograph._unopen(p_project, p_turn_id, p_call_id, p_is_new);
end $$;

-- _take_calls: take the tokens of the new calls of an item of suspend, for all of them or for none.
--   Returns {calls}, of which each such call has its rate; or a rejection that lists the calls that were rejected.
--   The caller holds the heads and the buckets.
create function heliograph._take_calls(
    p_project text, p_turn_id text, p_calls jsonb, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_before constant jsonb := (
        select jsonb_agg(to_jsonb(b) order by b.kind, b.name) from heliograph.rate_buckets b
         where b.project_id = p_project and (b.kind, b.name) in (
               select r.kind, r.name from heliograph._rates(
                   jsonb_path_query_array(p_calls, '$[*].rates[*] ? (@.kind != null)')) r));
    v_call jsonb;
    v_taken jsonb;
    v_rejection jsonb;
    v_calls jsonb := '[]';
    v_rejected jsonb := '{}';
begin
    for v_call in
        select c.item from jsonb_array_elements(p_calls) with ordinality c (item, n) order by n
    loop
        v_taken := '{}';
        if jsonb_path_exists(v_call, '$.rates[*].kind') and not exists (
               select from heliograph.turn_waiting_tools w
                where w.project_id = p_project and w.agent_turn_id = p_turn_id
                  and w.tool_call_id = v_call ->> 'call_id') then
            v_taken := heliograph._take_tokens(p_project, v_call -> 'rates', (v_call ->> 'timeout_seconds')::float8,
                                               p_now);
        end if;
        if v_taken ->> 'outcome' = 'rejected' then
            v_rejection := coalesce(v_rejection, v_taken);
            v_rejected := v_rejected || jsonb_build_object(v_call ->> 'call_id', jsonb_build_object(
                'message', v_taken -> 'message', 'rate', v_taken -> 'rate'));
        else
            v_calls := v_calls || (v_call || v_taken);
            if v_call ->> 'timeout_seconds' is null then  -- otherwise its timeout includes the time until its start
                perform heliograph._shift_trial(p_project, p_turn_id, v_call ->> 'call_id',
                                                   v_call -> 'circuit', v_taken -> 'rate', p_now);
            end if;
        end if;
    end loop;
    if v_rejection is null then
        return jsonb_build_object('calls', v_calls);
    end if;
    update heliograph.rate_buckets b
       set tokens_max = o.tokens_max, seconds = o.seconds, full_at = o.full_at, last_start = o.last_start,
           last_day = o.last_day, peaks = o.peaks
      from jsonb_populate_recordset(null::heliograph.rate_buckets, v_before) o
     where b.project_id = p_project and b.kind = o.kind and b.name = o.name;
    perform heliograph._release_trials(p_project, p_turn_id, p_calls);
    return v_rejection || jsonb_build_object('calls', v_rejected);
end $$;

-- _lock_taken: lock the buckets from which the calls of record_call whose tokens are corrected have taken some, and
--   those from which its intents take some. p_intents: see _intents_of; null for none.
--   locks:  the buckets; the caller holds the heads and the runs
create function heliograph._lock_taken(
    p_project text, p_turn_id text[], p_call_id text[], p_rate_tokens bigint[], p_intents heliograph.new_call[]
) returns void language plpgsql as $$
declare
    v_taken constant jsonb := (
        select jsonb_agg(w.rate order by n) from generate_subscripts(p_turn_id, 1) n
         cross join lateral (
               select x.rate from heliograph.turn_waiting_tools x
                where x.project_id = p_project and x.agent_turn_id = p_turn_id[n]
                  and x.tool_call_id = p_call_id[n] and x.rate is not null offset 0) w
         where p_rate_tokens[n] is not null);
    v_rated constant jsonb := coalesce(v_taken, '[]') || coalesce(to_jsonb(p_intents), '[]');
begin
    if heliograph._has_rates(v_rated) then
        perform heliograph._lock_rates(p_project, v_rated);
    end if;
end $$;

-- _correct_tokens: replace the estimate of a model call by its actual tokens. If the limit has changed since the call
--   began, unused tokens come back at the rate of the quicker limit. More tokens than estimated are taken from later
--   calls, by three years at most: a provider may report any number.
--   A bucket whose row has been removed since the call began is full, and remains so.
--   The caller holds the head, the run and the buckets.
create function heliograph._correct_tokens(
    p_project text, p_turn_id text, p_call_id text, p_tokens bigint, p_now timestamptz
) returns void language sql as $$
    update heliograph.rate_buckets b
       set full_at = greatest(0, least(
               case when d.back < 0 then greatest(b.full_at, d.at) else b.full_at end - d.back, 7258118400000000000)),
           peaks = heliograph._peaks(b.peaks, d.start, -d.back, null, null)
      from (select x.kind, x.name, n.at, n.start, greatest(-100000000000000000, least(
                       (r.amount - n.used)::numeric * case when r.amount > n.used
                           then least(r.interval_ns, heliograph._refill_ns(x)) else heliograph._refill_ns(x) end,
                       (select min((p -> 1)::bigint) from jsonb_array_elements(x.peaks) p
                         where (p -> 0)::bigint > n.start)))::bigint as back
              from heliograph.turn_waiting_tools w
             cross join lateral heliograph._rates(w.rate -> 'rates') r
             cross join lateral (
                   select heliograph._nanoseconds(p_now) as at, p_tokens as used,
                          heliograph._nanoseconds((w.rate ->> 'starts_at')::timestamptz) as start offset 0) n
             cross join lateral (
                   select y.* from heliograph.rate_buckets y
                    where y.project_id = p_project and y.kind = r.kind and y.name = r.name offset 0) x
             where w.project_id = p_project and w.agent_turn_id = p_turn_id
               and w.tool_call_id = p_call_id and r.kind = 'model_tokens') d
     where b.project_id = p_project and b.kind = d.kind and b.name = d.name
$$;

-- rate_overview: the buckets that calls have used; full_at: when a bucket is full if no more tokens are taken
create view heliograph.rate_overview as
select b.project_id, b.kind, b.name, b.tokens_max, b.seconds,
       timestamptz 'epoch' + b.full_at / 1000 * interval '1 microsecond' as full_at,
       case when b.last_start > 0
            then timestamptz 'epoch' + b.last_start / 1000 * interval '1 microsecond' end as last_start
  from heliograph.rate_buckets b;
