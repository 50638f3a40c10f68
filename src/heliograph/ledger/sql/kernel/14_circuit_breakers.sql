-- Circuit breakers: a target that fails is not called for a time (CB-01 to CB-07, G-27).
--
-- A closed breaker opens after failure_threshold failures in a row. After timeout_seconds it is half open and admits
-- at most half_open_max_calls trials. It closes after success_threshold successes, and opens again once too few trials
-- remain for that. The settings come with each call.
--
-- Only the admission of a call changes a state, and nothing waits for a breaker. A call of a closed breaker reads two
-- rows and locks none. Each other admission tries an advisory lock; while another transaction holds it, that one
-- decides, and this call is rejected. So breakers have no place in the order of locks. A result changes only the row
-- of its own call, and skips it if a decision has locked it. Each state has its generation, so results of calls that
-- an earlier state admitted count for nothing.

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
create function heliograph._reject_circuit(p_circuit jsonb, p_state text, p_until timestamptz) returns jsonb
    language sql stable as $$
    select heliograph._rejection('CIRCUIT_OPEN', case p_state
               when 'open' then format('the circuit breaker of %s %s is open until %s: its target fails',
                                       p_circuit ->> 'type', p_circuit ->> 'target', to_jsonb(p_until) #>> '{}')
               else format('the circuit breaker of %s %s is half open, and all its trial calls are under way',
                           p_circuit ->> 'type', p_circuit ->> 'target') end)
           || jsonb_build_object('circuit', jsonb_build_object(
                  'type', p_circuit -> 'type', 'target', p_circuit -> 'target', 'state', p_state, 'until', p_until))
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
        if v_breaker.state = 'open' and p_now < v_breaker.open_until then
            return heliograph._reject_circuit(p_circuit, 'open', v_breaker.open_until);
        elsif not pg_try_advisory_xact_lock(heliograph._circuit_lock(p_project, p_circuit)) then
            return heliograph._reject_circuit(p_circuit, 'half_open', p_now);
        end if;
        v_breaker := heliograph._move_circuit(p_project, p_circuit, p_now);
    end if;
    if v_breaker.state = 'open' then
        return heliograph._reject_circuit(p_circuit, 'open', v_breaker.open_until);
    elsif v_breaker.state = 'half_open' then
        select count(*), min(c.expires_at) filter (where c.status = 'trial') into v_calls, v_until
          from heliograph.circuit_calls c
         where c.project_id = p_project and c.type = v_breaker.type and c.target = v_breaker.target
           and c.generation = v_breaker.generation;
        if v_calls >= heliograph._as_whole(p_circuit -> 'half_open_max_calls') then
            return heliograph._reject_circuit(p_circuit, 'half_open', v_until);
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
        if v_breaker.state = 'half_open' then
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
        values (p_project, v_breaker.type, v_breaker.target, v_next, v_breaker.generation + 1, case v_next when 'open'
                then v_failed_at + make_interval(secs => (p_circuit ->> 'timeout_seconds')::float8) end, p_now)
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
--   had results. A trial of a canceled turn counts for nothing.
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
create function heliograph._release_trials(p_project text, p_turn_id text, p_calls jsonb) returns void
    language sql as $$
    delete from heliograph.circuit_calls c
     using jsonb_to_recordset(p_calls) as x (call_id text, circuit jsonb)
     where c.project_id = p_project and c.type = x.circuit ->> 'type' and c.target = x.circuit ->> 'target'
       and c.generation = (x.circuit -> 'generation')::bigint and c.agent_turn_id = p_turn_id
       and c.call_id = x.call_id and c.status = 'trial'
$$;

-- _admit_inline: admit the new calls of begin_call, and those that begin again.
--   p_items: the items of begin_call. p_answers: its answers so far, with is_new for calls that it has just opened.
--   Returns p_answers. A new call that is rejected is not open. One that begins again stays open, without its mark.
--   The caller holds the heads.
create function heliograph._admit_inline(p_project text, p_items jsonb, p_answers jsonb, p_now timestamptz)
    returns jsonb language plpgsql as $$
declare
    v_each record;
    v_admitted jsonb;
    v_answers jsonb := '[]';
    v_rejected jsonb := '{}';
begin
    for v_each in
        select a.item, a.item ->> 'turn_id' as turn_id, a.item ->> 'call_id' as call_id,
               jsonb_build_array(a.item -> 'turn_id', a.item -> 'call_id')::text as name,
               (a.item -> 'is_new') is not null as is_new, i.item -> 'circuit_breaker' as circuit,
               (i.item ->> 'timeout_seconds')::float8 as timeout_seconds
          from jsonb_array_elements(p_answers) with ordinality a (item, n)
         cross join lateral (select p_items -> (a.n::integer - 1) as item offset 0) i order by a.n
    loop
        v_admitted := v_rejected -> v_each.name;
        if v_admitted is null and jsonb_typeof(v_each.circuit) = 'object'
           and (v_each.is_new or v_each.item ->> 'outcome' = 'again'
                              and not heliograph._prolong_trial(p_project, v_each.turn_id, v_each.call_id,
                                      v_each.circuit, v_each.timeout_seconds, p_now)) then
            v_admitted := heliograph._admit_call(p_project, v_each.turn_id, v_each.call_id, v_each.circuit,
                                                 v_each.timeout_seconds, p_now);
            update heliograph.turn_waiting_tools set circuit = v_admitted -> 'circuit'
             where v_admitted ->> 'outcome' is null and project_id = p_project
               and agent_turn_id = v_each.turn_id and tool_call_id = v_each.call_id;
            if v_admitted ->> 'outcome' = 'rejected' then
                perform heliograph._unopen(p_project, v_each.turn_id, v_each.call_id, v_each.is_new);
                v_rejected := v_rejected || jsonb_build_object(v_each.name, v_admitted);
            end if;
        end if;
        v_answers := v_answers || (case when v_admitted ->> 'outcome' = 'rejected' then v_each.item - 'is_new'
                                        else v_each.item end || coalesce(v_admitted, '{}'));
    end loop;
    return v_answers;
end $$;

-- _unopen: remove a call that begin_call has just opened, or the mark of one that was open before.
create function heliograph._unopen(p_project text, p_turn_id text, p_call_id text, p_is_new boolean) returns void
    language sql as $$
    delete from heliograph.turn_waiting_tools
     where p_is_new and project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
    delete from heliograph.execution_edges
     where p_is_new and project_id = p_project and agent_turn_id = p_turn_id and call_id = p_call_id;
    update heliograph.turn_waiting_tools set circuit = null
     where not p_is_new and project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
$$;

-- _prolong_trial: whether a call that begins again still is a trial. Its time starts anew.
create function heliograph._prolong_trial(
    p_project text, p_turn_id text, p_call_id text, p_circuit jsonb, p_timeout_seconds float8, p_now timestamptz
) returns boolean language plpgsql as $$
begin
    update heliograph.circuit_calls c
       set expires_at = p_now + make_interval(
               secs => coalesce(p_timeout_seconds, (p_circuit ->> 'timeout_seconds')::float8))
      from (select x.ctid as at from heliograph.circuit_calls x
              join heliograph.circuit_breakers b using (project_id, type, target, generation)
             where x.project_id = p_project and x.type = p_circuit ->> 'type' and x.target = p_circuit ->> 'target'
               and x.agent_turn_id = p_turn_id and x.call_id = p_call_id and x.status = 'trial'
             order by x.position for update of x skip locked) own
     where c.ctid = own.at;
    return found;
end $$;

-- _has_circuits: whether an item of suspend has a call with a breaker.
create function heliograph._has_circuits(p_items jsonb) returns boolean
    language sql immutable as $$
    select jsonb_path_exists(p_items, '$[*].calls[*].circuit_breaker.type() ? (@ != "null")')
$$;

-- _admit_calls: admit the new calls of an item of suspend, all of them or none.
--   Returns the item, in which each call has its mark, and circuits: the marks by call id; or a rejection with the
--   message and the breaker of each call that was not admitted.
--   The caller holds the heads.
create function heliograph._admit_calls(p_project text, p_item jsonb, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_turn_id constant text := p_item ->> 'turn_id';
    v_call jsonb;
    v_admitted jsonb;
    v_rejection jsonb;
    v_calls jsonb := '[]';
    v_circuits jsonb := '{}';
    v_rejected jsonb := '{}';
begin
    for v_call in
        select c.item from jsonb_array_elements(p_item -> 'calls') with ordinality c (item, n) order by n
    loop
        v_admitted := '{}';
        if jsonb_typeof(v_call -> 'circuit_breaker') = 'object' and not exists (
               select from heliograph.turn_waiting_tools w
                where w.project_id = p_project and w.agent_turn_id = v_turn_id
                  and w.tool_call_id = v_call ->> 'call_id') then
            v_admitted := heliograph._admit_call(p_project, v_turn_id, v_call ->> 'call_id',
                                                 v_call -> 'circuit_breaker',
                                                 (v_call ->> 'timeout_seconds')::float8, p_now);
        end if;
        if v_admitted ->> 'outcome' = 'rejected' then
            v_rejection := coalesce(v_rejection, v_admitted);
            v_rejected := v_rejected || jsonb_build_object(v_call ->> 'call_id', jsonb_build_object(
                'message', v_admitted -> 'message', 'circuit', v_admitted -> 'circuit'));
        else
            v_calls := v_calls || (v_call || v_admitted);
            v_circuits := v_circuits || case when v_admitted = '{}' then '{}' else jsonb_build_object(
                v_call ->> 'call_id', v_admitted -> 'circuit') end;
        end if;
    end loop;
    if v_rejection is not null then
        perform heliograph._release_trials(p_project, v_turn_id, v_calls);
        return v_rejection || jsonb_build_object('calls', v_rejected);
    end if;
    return p_item || jsonb_build_object('calls', v_calls, 'circuits', v_circuits);
end $$;

-- _admit_items: admit the calls of the items of a round of suspend, one item after another.
--   Returns {items, places, answers}: all items, admitted ones with marks; the places of these; the rejections.
--   The caller holds the heads.
create function heliograph._admit_items(p_project text, p_items jsonb, p_places integer[], p_now timestamptz)
    returns jsonb language plpgsql as $$
declare
    v_n integer;
    v_admitted jsonb;
    v_places integer[] := '{}';
    v_answers jsonb := '[]';
begin
    foreach v_n in array p_places loop
        v_admitted := heliograph._admit_calls(p_project, p_items -> (v_n - 1), p_now);
        if v_admitted ->> 'outcome' = 'rejected' then
            v_answers := v_answers || (v_admitted || jsonb_build_object(
                'n', v_n, 'turn_id', p_items -> (v_n - 1) -> 'turn_id'));
        else
            p_items := jsonb_set(p_items, array[(v_n - 1)::text], v_admitted);
            v_places := v_places || v_n;
        end if;
    end loop;
    return jsonb_build_object('items', p_items, 'places', to_jsonb(v_places), 'answers', v_answers);
end $$;

-- _count_circuits: count the results of calls that breakers have admitted.
--   p_results: [{turn_id, call_id, status, circuit, is_recoverable}]. A timeout counts as a failure, and so does an
--   error that is recoverable. A trial whose result is unknown counts as one, too. Other errors, and canceled calls,
--   count for nothing: a trial that ends so makes room for another. A success while the breaker is closed removes the
--   failures before it, and writes nothing if there are none.
--   locks:  rows of calls and breakers, skipping those that another transaction has locked
create function heliograph._count_circuits(p_project text, p_results jsonb, p_now timestamptz) returns void
    language sql as $$
    with result as materialized (
        select r.*, case when r.status = 'success' then 'success'
                         when r.status = 'timeout' or r.status = 'failed' and r.is_recoverable
                              or r.status = 'unknown' and r.is_trial then 'failure' end as verdict
          from (select x.turn_id, x.call_id, x.status, x.is_recoverable, x.circuit ->> 'type' as type,
                       x.circuit ->> 'target' as target, heliograph._as_whole(x.circuit -> 'generation') as generation,
                       heliograph._as_boolean(x.circuit -> 'is_trial') as is_trial, x.n
                  from rows from (jsonb_to_recordset(p_results) as (
                           turn_id text, call_id text, status text, circuit jsonb, is_recoverable boolean))
                       with ordinality x (turn_id, call_id, status, circuit, is_recoverable, n)) r
    ), trial as materialized (
        select c.ctid as at, r.verdict
          from result r
          join heliograph.circuit_calls c
            on r.is_trial and c.project_id = p_project and c.type = r.type and c.target = r.target
           and c.generation = r.generation and c.agent_turn_id = r.turn_id and c.call_id = r.call_id
           and c.status = 'trial'
         order by c.position for update of c skip locked
    ), ended as (
        update heliograph.circuit_calls c set status = t.verdict, ended_at = p_now
          from trial t where c.ctid = t.at and t.verdict is not null
    ), released as (
        delete from heliograph.circuit_calls c using trial t where c.ctid = t.at and t.verdict is null
    ), failed as (
        insert into heliograph.circuit_calls (project_id, type, target, generation, agent_turn_id, call_id, status,
                                              ended_at)
        select p_project, r.type, r.target, r.generation, r.turn_id, r.call_id, 'failure', p_now
          from result r
         where not r.is_trial and r.verdict = 'failure' and r.generation = coalesce((
               select b.generation from heliograph.circuit_breakers b
                where b.project_id = p_project and b.type = r.type and b.target = r.target), 0)
         order by r.n
    ), recovered as materialized (
        select c.ctid as at from heliograph.circuit_calls c
         where c.project_id = p_project and c.status = 'failure' and (c.type, c.target, c.generation) in (
               select r.type, r.target, r.generation from result r where not r.is_trial and r.verdict = 'success')
         order by c.position for update skip locked
    )
    delete from heliograph.circuit_calls c using recovered f where c.ctid = f.at
$$;

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
