-- Circuit breakers: a target that fails is not called for a time (CB-01 to CB-07, G-27).
--
-- A closed breaker opens after failure_threshold failures in a row. After timeout_seconds it is half open and admits
-- at most half_open_max_calls trials. It closes after success_threshold successes, and opens again once too few trials
-- remain for that. The settings come with each call.
--
-- Only the admission of a call changes a state, and no call waits for a breaker. A call of a closed breaker reads two
-- rows and locks none. Each other admission tries an advisory lock; while another transaction holds it, that one
-- decides, and this call is rejected. So breakers have no place in the order of locks. A result changes only the row
-- of its own call, and skips it if a decision has locked it. Each state has its generation, so results of calls that
-- an earlier state admitted do not count.

-- _wrong_circuit: null, or the problem of the settings of a breaker.
create function heliograph._wrong_circuit(p_path text, p_circuit jsonb) returns text
    language sql immutable as $$
    select case when jsonb_typeof(p_circuit) = 'null' then null
                when jsonb_typeof(p_circuit) <> 'object' then p_path || ' must be an object'
                else coalesce(
        heliograph._wrong_keys(p_path, p_circuit, '{type,target,failure_threshold,success_threshold,timeout_seconds,'
                                                  'half_open_max_calls}'),
        case when not coalesce(p_circuit ->> 'type' in ('tool_call', 'delegation', 'model_call'), false)
             then p_path || '.type must be tool_call, delegation or model_call'
             when not coalesce(jsonb_typeof(p_circuit -> 'target') = 'string'
                               and octet_length(p_circuit ->> 'target') between 1 and 200, false)
             then p_path || '.target must have 1 to 200 bytes' end,
        (select min(p_path || '.' || k || ' must be a whole number from 1 to 1000')
           from unnest('{failure_threshold,success_threshold,half_open_max_calls}'::text[]) k
          where not coalesce(case jsonb_typeof(p_circuit -> k) when 'number'
                             then (p_circuit -> k)::numeric between 1 and 1000
                                  and (p_circuit -> k)::numeric % 1 = 0 end, false)),
        case when not coalesce(case jsonb_typeof(p_circuit -> 'timeout_seconds') when 'number'
                               then (p_circuit -> 'timeout_seconds')::numeric between 0.001 and 31622400 end, false)
             then p_path || '.timeout_seconds must be between 0.001 and 366 days'
             when heliograph._as_whole(p_circuit -> 'success_threshold')
                  > heliograph._as_whole(p_circuit -> 'half_open_max_calls')
             then p_path || '.success_threshold must be at most half_open_max_calls, because the breaker could '
                            'not close' end) end
$$;

-- _circuit_lock: the key of the advisory lock of a breaker; see _blob_lock.
create function heliograph._circuit_lock(p_project text, p_circuit jsonb) returns bigint
    language sql immutable as $$
    select hashtextextended(jsonb_build_array('heliograph.circuit_breakers', p_project, p_circuit -> 'type',
                                              p_circuit -> 'target')::text, 0)
$$;

-- _reject_circuit: the rejection of a call by a breaker. p_until: when it may admit a call again, at the latest.
create function heliograph._reject_circuit(
    p_circuit jsonb, p_state text, p_until timestamptz, p_now timestamptz
) returns jsonb language sql stable as $$
    select heliograph._rejection('CIRCUIT_OPEN', case p_state
               when 'open' then format('the circuit breaker of %s %s is open until %s: its target fails',
                                       p_circuit ->> 'type', p_circuit ->> 'target', to_jsonb(p_until) #>> '{}')
               else format('the circuit breaker of %s %s is half open, and all its trial calls are under way',
                           p_circuit ->> 'type', p_circuit ->> 'target') end)
           || jsonb_build_object('circuit', jsonb_build_object(
                  'type', p_circuit -> 'type', 'target', p_circuit -> 'target', 'state', p_state, 'until', p_until,
                  'retry_seconds', greatest(extract(epoch from p_until - p_now), 0)))
$$;

-- _is_open: whether a breaker is open, and its open time has not passed.
create function heliograph._is_open(p_breaker heliograph.circuit_breakers, p_now timestamptz) returns boolean
    language sql immutable as $$
    select p_breaker.state = 'open' and p_now >= p_breaker.changed_at and p_now < p_breaker.open_until
$$;

-- _reject_if_open: the rejection of a new call whose breaker is open; null if the breaker is not open, or has no row.
create function heliograph._reject_if_open(p_project text, p_circuit jsonb, p_now timestamptz) returns jsonb
    language sql stable as $$
    select heliograph._reject_circuit(p_circuit, 'open', b.open_until, p_now)
      from heliograph.circuit_breakers b
     where b.project_id = p_project and b.type = p_circuit ->> 'type' and b.target = p_circuit ->> 'target'
       and heliograph._is_open(b, p_now)
$$;

-- _admit_call: admit a new call, or reject it. p_circuit: the settings of its breaker. p_timeout_seconds: of the call.
--   Returns {circuit}, the mark that the call keeps, or a rejection. The caller holds the head.
--   locks:  the breaker, without waiting, unless it is closed and has few failures
create function heliograph._admit_call(
    p_project text, p_turn_id text, p_call_id text, p_circuit jsonb, p_timeout_seconds float8, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_breaker heliograph.circuit_breakers;
    v_calls bigint;
    v_until timestamptz;
begin
    v_breaker := heliograph._circuit_breaker(p_project, p_circuit);
    select count(*) into v_calls from heliograph.circuit_calls c
     where c.project_id = p_project and c.type = v_breaker.type and c.target = v_breaker.target
       and c.generation = v_breaker.generation and v_breaker.state = 'closed';
    if v_breaker.state <> 'closed' or v_calls >= heliograph._as_whole(p_circuit -> 'failure_threshold') then
        if heliograph._is_open(v_breaker, p_now) then
            return heliograph._reject_circuit(p_circuit, 'open', v_breaker.open_until, p_now);
        elsif not pg_try_advisory_xact_lock(heliograph._circuit_lock(p_project, p_circuit)) then
            return heliograph._reject_circuit(p_circuit, 'half_open', p_now, p_now);
        end if;
        v_breaker := heliograph._move_circuit(p_project, p_circuit, p_now);
    end if;
    if v_breaker.state = 'open' then
        return heliograph._reject_circuit(p_circuit, 'open', v_breaker.open_until, p_now);
    elsif v_breaker.state = 'half_open' then
        select count(*), min(c.expires_at) filter (where c.status = 'trial') into v_calls, v_until
          from heliograph.circuit_calls c
         where c.project_id = p_project and c.type = v_breaker.type and c.target = v_breaker.target
           and c.generation = v_breaker.generation;
        if v_calls >= heliograph._as_whole(p_circuit -> 'half_open_max_calls') then
            return heliograph._reject_circuit(p_circuit, 'half_open', v_until, p_now);
        end if;
        insert into heliograph.circuit_calls (project_id, type, target, generation, agent_turn_id, call_id, status,
                                              expires_at)
        values (p_project, v_breaker.type, v_breaker.target, v_breaker.generation, p_turn_id, p_call_id, 'trial',
                p_now + make_interval(secs => coalesce(p_timeout_seconds, (p_circuit ->> 'timeout_seconds')::float8)));
    end if;
    return jsonb_build_object('circuit', jsonb_build_object(
        'type', v_breaker.type, 'target', v_breaker.target, 'generation', v_breaker.generation,
        'is_trial', v_breaker.state = 'half_open'));
end $$;

-- _circuit_breaker: the row of a breaker; a closed one of generation 0 if there is none.
create function heliograph._circuit_breaker(p_project text, p_circuit jsonb) returns heliograph.circuit_breakers
    language plpgsql stable as $$
declare
    v_breaker heliograph.circuit_breakers;
begin
    select b.* into v_breaker from heliograph.circuit_breakers b
     where b.project_id = p_project and b.type = p_circuit ->> 'type' and b.target = p_circuit ->> 'target';
    if not found then
        v_breaker.project_id := p_project;
        v_breaker.type := p_circuit ->> 'type';
        v_breaker.target := p_circuit ->> 'target';
        v_breaker.state := 'closed';
        v_breaker.generation := 0;
    end if;
    return v_breaker;
end $$;

-- _move_circuit: bring a breaker to the state that its calls and the time require. Returns its row.
--   A breaker that a fast clock has opened in the future remains open for its time from now on.
--   The caller holds the lock of the breaker.
create function heliograph._move_circuit(p_project text, p_circuit jsonb, p_now timestamptz)
    returns heliograph.circuit_breakers language plpgsql as $$
declare
    v_needed constant bigint := heliograph._as_whole(p_circuit -> 'success_threshold');
    v_trials constant bigint := heliograph._as_whole(p_circuit -> 'half_open_max_calls');
    v_breaker heliograph.circuit_breakers;
    v_failures bigint;
    v_successes bigint;
    v_failed_at timestamptz;
    v_next text;
begin
    loop  -- at most closed, open, half open, or half open, open, half open
        v_breaker := heliograph._circuit_breaker(p_project, p_circuit);
        if v_breaker.state = 'open' and v_breaker.changed_at > p_now then
            update heliograph.circuit_breakers b
               set open_until = greatest(p_now, p_now + (b.open_until - b.changed_at)), changed_at = p_now
             where b.project_id = p_project and b.type = v_breaker.type and b.target = v_breaker.target
            returning b.* into v_breaker;
        elsif v_breaker.state = 'half_open' then
            perform heliograph._end_lost_trials(p_project, v_breaker, p_now);
        end if;
        select count(*) filter (where c.status = 'failure'), count(*) filter (where c.status = 'success'),
               max(c.ended_at) filter (where c.status = 'failure')
          into v_failures, v_successes, v_failed_at
          from heliograph.circuit_calls c
         where c.project_id = p_project and c.type = v_breaker.type and c.target = v_breaker.target
           and c.generation = v_breaker.generation;
        v_next := case v_breaker.state
            when 'closed' then
                case when v_failures >= heliograph._as_whole(p_circuit -> 'failure_threshold') then 'open' end
            when 'open' then case when p_now >= v_breaker.open_until then 'half_open' end
            else case when v_successes >= v_needed then 'closed'
                      when v_failures > v_trials - v_needed then 'open' end end;
        if v_next is null then
            return v_breaker;
        end if;
        insert into heliograph.circuit_breakers as b
            (project_id, type, target, state, generation, open_until, changed_at)
        values (p_project, v_breaker.type, v_breaker.target, v_next, (v_breaker.generation + 1) % 1000000000000000,
                case v_next when 'open' then least(v_failed_at, p_now) + make_interval(
                    secs => (p_circuit ->> 'timeout_seconds')::float8) end, p_now)
        on conflict (project_id, type, target) do update
           set state = excluded.state, generation = excluded.generation, open_until = excluded.open_until,
               changed_at = excluded.changed_at;
        delete from heliograph.circuit_calls c using (
               select x.ctid as at from heliograph.circuit_calls x
                where x.project_id = p_project and x.type = v_breaker.type and x.target = v_breaker.target
                  and x.generation <= v_breaker.generation
                order by x.generation, x.position for update skip locked) old
         where c.ctid = old.at;
    end loop;
end $$;

-- _end_lost_trials: count as failures the trials whose time is over, and those of turns that ended before their calls
--   had results. A trial of a canceled turn does not count.
--   The caller holds the lock of the breaker.
create function heliograph._end_lost_trials(
    p_project text, p_breaker heliograph.circuit_breakers, p_now timestamptz
) returns void language sql as $$
    with lost as materialized (
        select c.ctid as at, t.outcome = 'canceled' as is_canceled
          from heliograph.circuit_calls c
          left join heliograph.turn_waiting_tools w
            on w.project_id = p_project and w.agent_turn_id = c.agent_turn_id and w.tool_call_id = c.call_id
          left join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = c.agent_turn_id
         where c.project_id = p_project and c.type = p_breaker.type and c.target = p_breaker.target
           and c.generation = p_breaker.generation and c.status = 'trial'
           and (c.expires_at <= p_now or w.state = 'closed')
         order by c.position for update of c skip locked
    ), released as (
        delete from heliograph.circuit_calls c using lost l where c.ctid = l.at and l.is_canceled
    )
    update heliograph.circuit_calls c set status = 'failure', ended_at = least(c.expires_at, p_now)
      from lost l where c.ctid = l.at and l.is_canceled is not true
$$;

-- _release_trials: take back the trials that calls of this transaction were admitted as, because they are not made.
--   A trial of an earlier owner that another transaction has locked is skipped: that one decides about it.
create function heliograph._release_trials(p_project text, p_turn_id text, p_calls jsonb) returns void
    language sql as $$
    delete from heliograph.circuit_calls c using (
           select y.ctid as at from jsonb_to_recordset(p_calls) as x (call_id text, circuit jsonb)
             join heliograph.circuit_calls y
               on y.project_id = p_project and y.type = x.circuit ->> 'type' and y.target = x.circuit ->> 'target'
              and y.generation = (x.circuit -> 'generation')::bigint and y.agent_turn_id = p_turn_id
              and y.call_id = x.call_id and y.status = 'trial'
            order by y.position for update of y skip locked) own
     where c.ctid = own.at
$$;

-- circuit_overview: circuit breakers, and the calls that count in their present state
create view heliograph.circuit_overview as
select coalesce(b.project_id, k.project_id) as project_id, coalesce(b.type, k.type) as type,
       coalesce(b.target, k.target) as target, coalesce(b.state, 'closed') as state, b.open_until, b.changed_at,
       coalesce(k.failures, 0) as failures, coalesce(k.successes, 0) as successes, coalesce(k.trials, 0) as trials
  from heliograph.circuit_breakers b
  full join (select c.project_id, c.type, c.target, c.generation,
                    count(*) filter (where c.status = 'failure') as failures,
                    count(*) filter (where c.status = 'success') as successes,
                    count(*) filter (where c.status = 'trial') as trials
               from heliograph.circuit_calls c group by 1, 2, 3, 4) k
    on k.project_id = b.project_id and k.type = b.type and k.target = b.target and k.generation = b.generation;
