-- The calls of turns and their circuit breakers: begin_call and suspend pass their new calls for admission, and every
-- recorded result is counted. 14_circuit_breakers.sql decides.

-- _admit_inline: admit the new calls of begin_call, and those that begin again.
--   p_opened: whether begin_call has just opened the call. p_answers: its answers so far. Returns p_answers. A new call
--   that is rejected is not open. One that begins again remains open, without its mark. If begin_call has rejected a
--   call because its breaker is open, so are the later items of this call, unless their owner is stale or their own
--   breaker is open, too.
--   The caller holds the heads.
create function heliograph._admit_inline(
    p_project text, p_calls heliograph.new_call[], p_opened boolean[], p_answers jsonb[], p_now timestamptz
) returns jsonb[] language plpgsql as $$
declare
    v_call heliograph.new_call;
    v_name text;
    v_admitted jsonb;
    v_rejected jsonb := '{}';
begin
    for n in 1 .. cardinality(p_calls) loop
        v_call := p_calls[n];
        v_name := jsonb_build_array(v_call.turn_id, v_call.call_id)::text;
        v_admitted := case when p_answers[n] ->> 'outcome' <> 'stale' then v_rejected -> v_name end;
        if p_answers[n] ->> 'code' = 'CIRCUIT_OPEN' then
            v_admitted := null;  -- its own breaker rejects it
            v_rejected := v_rejected || jsonb_build_object(v_name, p_answers[n]);
        elsif v_admitted is null and v_call.circuit_breaker is not null
           and (p_opened[n] or p_answers[n] ->> 'outcome' = 'again'
                               and not heliograph._prolong_trial(p_project, v_call.turn_id, v_call.call_id,
                                       v_call.circuit_breaker, v_call.timeout_seconds, p_now)) then
            v_admitted := heliograph._admit_call(p_project, v_call.turn_id, v_call.call_id, v_call.circuit_breaker,
                                                 v_call.timeout_seconds, p_now);
            update heliograph.turn_waiting_tools set circuit = v_admitted -> 'circuit'
             where v_admitted ->> 'outcome' is null and project_id = p_project
               and agent_turn_id = v_call.turn_id and tool_call_id = v_call.call_id;
            if v_admitted ->> 'outcome' = 'rejected' then
                perform heliograph._unopen(p_project, v_call.turn_id, v_call.call_id, p_opened[n]);
                v_rejected := v_rejected || jsonb_build_object(v_name, v_admitted);
            end if;
        end if;
        p_answers[n] := p_answers[n] || coalesce(v_admitted, '{}');
    end loop;
    return p_answers;
end $$;

-- _unopen: remove a call that begin_call has just opened, or the mark of one that was open before.
create function heliograph._unopen(p_project text, p_turn_id text, p_call_id text, p_is_new boolean) returns void
    language sql as $$
    delete from heliograph.turn_waiting_tools
     where p_is_new and project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
    update heliograph.turn_waiting_tools set circuit = null
     where not p_is_new and project_id = p_project and agent_turn_id = p_turn_id and tool_call_id = p_call_id;
$$;

-- _prolong_trial: whether a call that begins again is still a trial. Its time starts again.
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

-- _shift_trial: let the time of a trial, which this transaction admitted, begin with the start of its call. p_circuit:
--   the mark of the call, p_rate: its start, see 15_rate_limits.sql; null: none.
create function heliograph._shift_trial(
    p_project text, p_turn_id text, p_call_id text, p_circuit jsonb, p_rate jsonb, p_now timestamptz
) returns void language sql as $$
    update heliograph.circuit_calls c
       set expires_at = c.expires_at + greatest((p_rate ->> 'starts_at')::timestamptz - p_now, interval '0')
      from (select x.ctid as at from heliograph.circuit_calls x
             where p_rate is not null and x.project_id = p_project and x.type = p_circuit ->> 'type'
               and x.target = p_circuit ->> 'target' and x.generation = (p_circuit -> 'generation')::bigint
               and x.agent_turn_id = p_turn_id and x.call_id = p_call_id and x.status = 'trial'
             order by x.position for update skip locked) own
     where c.ctid = own.at
$$;

-- _has_circuits: whether a call of an item of suspend has a breaker.
create function heliograph._has_circuits(p_calls jsonb) returns boolean
    language sql immutable as $$
    select jsonb_path_exists(p_calls, '$[*].circuit_breaker.type() ? (@ != "null")')
$$;

-- _admit_calls: admit the new calls of an item of suspend, all of them or none.
--   Returns {calls, circuits}: the calls with their marks, and the marks by call id; or a rejection with the message
--   and the breaker of each call that was not admitted.
--   The caller holds the heads.
create function heliograph._admit_calls(
    p_project text, p_turn_id text, p_calls jsonb, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_call jsonb;
    v_admitted jsonb;
    v_rejection jsonb;
    v_calls jsonb := '[]';
    v_circuits jsonb := '{}';
    v_rejected jsonb := '{}';
begin
    for v_call in
        select c.item from jsonb_array_elements(p_calls) with ordinality c (item, n) order by n
    loop
        v_admitted := '{}';
        if jsonb_typeof(v_call -> 'circuit_breaker') = 'object' and not exists (
               select from heliograph.turn_waiting_tools w
                where w.project_id = p_project and w.agent_turn_id = p_turn_id
                  and w.tool_call_id = v_call ->> 'call_id') then
            v_admitted := heliograph._admit_call(p_project, p_turn_id, v_call ->> 'call_id',
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
        perform heliograph._release_trials(p_project, p_turn_id, v_calls);
        return v_rejection || jsonb_build_object('calls', v_rejected);
    end if;
    return jsonb_build_object('calls', v_calls, 'circuits', v_circuits);
end $$;

-- _count_circuits: count the results of calls that breakers have admitted.
--   p_results: [{turn_id, call_id, status, circuit, is_recoverable}]. A timeout counts as a failure, and so does an
--   error that is recoverable. A trial whose result is unknown counts as one, too. Other errors, and canceled calls,
--   do not count: after a trial that ends so, another one is admitted. A success while the breaker is closed removes
--   the failures before it, and writes nothing if there are none.
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
                where b.project_id = p_project and b.type = r.type and b.target = r.target
                order by b.target for key share skip locked), 0)  -- prune deletes no breaker that has calls
         order by r.n
    ), recovered as materialized (
        select c.ctid as at from heliograph.circuit_calls c
         where c.project_id = p_project and c.status = 'failure' and (c.type, c.target, c.generation) in (
               select r.type, r.target, r.generation from result r where not r.is_trial and r.verdict = 'success')
         order by c.position for update skip locked
    )
    delete from heliograph.circuit_calls c using recovered f where c.ctid = f.at
$$;
