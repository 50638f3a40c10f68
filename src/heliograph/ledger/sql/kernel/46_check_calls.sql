-- Checks of calls. An invalid call is an error that names the field. A call above a limit has the outcome 'rejected'.

-- _wrong_open_as: null, or the problem of a call that record_call opens.
create function heliograph._wrong_open_as(p_call_id text, p_open_as jsonb) returns text
    language plpgsql immutable as $$
begin
    return case when jsonb_typeof(p_open_as) <> 'object'
                then 'open_as must be an object with the step_id and the tool of the call'
                else coalesce(heliograph._wrong_keys('p_items[].open_as', p_open_as, '{step_id,tool,taint}'),
                              heliograph._wrong_type('p_items[].open_as', p_open_as, 'taint', 'array'),
                              heliograph._wrong_call(p_open_as || jsonb_build_object('call_id', p_call_id))) end;
end $$;

-- _is_usual_wait: whether a call is a valid one of kind tool or human, with no circuit breaker and no rates, and its
--   command for the default pool. Inlined, as _is_usual_draft.
create function heliograph._is_usual_wait(p_call jsonb) returns boolean
    language sql immutable as $$
    select case when jsonb_typeof(p_call) = 'object' then
        p_call - '{call_id,step_id,tool,kind,effect,timeout_seconds,token,after_execution,may_override,fails_fast,taint,
                   is_trusted,command,child}'::text[] = '{}'
        -- a missing key has no type, so that no comparison with its type is true
        and p_call @@ '($.kind == "tool" || $.kind == "human") && !($.child.type() != "null")
                       && !($.taint.type() != "null" && $.taint.type() != "array")
                       && !($.token.type() != "null" && $.token.type() != "string")
                       && !($.timeout_seconds.type() != "null" && !($.timeout_seconds.type() == "number"
                            && $.timeout_seconds >= 0 && $.timeout_seconds <= 31622400))
                       && !($.command.type() != "null" && $.command.type() != "object")
                       && !($.command.body.type() != "null" && $.command.body.type() != "object")
                       && !($.command.subject.type() != "null" && $.command.subject.type() != "string")
                       && !($.command.pool.type() != "null") && !($.command.priority.type() != "null")'
        and heliograph._wrong_id('', p_call ->> 'call_id') is null
        and octet_length(p_call ->> 'tool') between 1 and 200
        and (octet_length(p_call ->> 'step_id') <= 200) is not false
        and (p_call ->> 'effect' in ('pure', 'idempotent', 'transactional', 'once')) is not false
        and (p_call ->> 'after_execution' in ('suspend', 'terminate')) is not false
        and (octet_length(p_call ->> 'token') between 1 and 1000) is not false
        and (octet_length(p_call #>> '{command,subject}') <= 200) is not false
        and case jsonb_typeof(p_call -> 'command')
            when 'object' then (p_call -> 'command') - '{subject,body,pool,priority}'::text[] = '{}' else true end end
$$;

-- _check_suspend: reject items with an invalid phase, join, call, card or recording. A call of the usual form is
--   accepted by a short check (decision 0118).
--   Returns whether no call is a child, or has a circuit breaker or rates; it may be false for other calls, too.
--   raises: 22023 naming the field
create function heliograph._check_suspend(
    p_phase text[], p_join text[], p_cards jsonb[], p_signals jsonb[], p_calls jsonb[], p_recording jsonb[]
) returns boolean language plpgsql immutable as $$
declare
    v_call jsonb;
    v_wrong text;
    v_is_usual boolean := true;
begin
    perform heliograph._check_phases(p_phase);
    perform heliograph._check_recorded(p_recording);
    if not array_replace(p_join, null, 'all') <@ '{all,each}' then
        v_wrong := 'join must be all or each';
    end if;
    for n in 1 .. cardinality(p_calls) loop
        for m in 0 .. coalesce(jsonb_array_length(p_cards[n]), 0) - 1 loop
            v_wrong := coalesce(v_wrong, heliograph._wrong_card(p_cards[n] -> m));
        end loop;
        for m in 0 .. coalesce(jsonb_array_length(p_calls[n]), 0) - 1 loop
            v_call := p_calls[n] -> m;
            if heliograph._is_usual_wait(v_call) is not true then
                v_is_usual := false;
                v_wrong := coalesce(v_wrong, heliograph._wait_problem(
                    v_call, coalesce(jsonb_array_length(p_signals[n]), 0)));
            end if;
        end loop;
        if jsonb_array_length(p_calls[n]) > 1 and heliograph._repeats_call(p_calls[n]) then
            v_wrong := coalesce(v_wrong, 'two calls of the item have the same id: give each its own');
        end if;
    end loop;
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
    return v_is_usual;
end $$;

-- _repeats_call: whether two of these calls have the same id, or one has none.
create function heliograph._repeats_call(p_calls jsonb) returns boolean
    language plpgsql immutable as $$
begin
    return jsonb_array_length(p_calls) > (select count(distinct c ->> 'call_id') from jsonb_array_elements(p_calls) c);
end $$;

-- _wait_problem: null, or the problem of a call that _is_usual_wait does not accept. p_drafts: the number of signals of
--   its item.
create function heliograph._wait_problem(p_call jsonb, p_drafts integer) returns text
    language plpgsql immutable as $$
begin
    return coalesce(heliograph._wrong_wait(p_call), heliograph._wrong_call(p_call), case
        when not coalesce(p_call ->> 'kind' in ('tool', 'child', 'timer', 'human'), false)
        then 'the kind of a call must be tool, child, timer or human'
        when (p_call ->> 'kind' = 'child') <> (coalesce(jsonb_typeof(p_call -> 'child'), 'null') = 'object')
        then 'a call of kind child must have a child, and no other call may have one'
        when p_call ->> 'kind' = 'timer' and p_call ->> 'timeout_seconds' is null then 'a timer must have a timeout'
        when not coalesce(p_call ->> 'after_execution' in ('suspend', 'terminate'), true)
        then 'after_execution must be suspend or terminate'
        when not coalesce(octet_length(p_call ->> 'token') between 1 and 1000, true)
        then 'a token must have 1 to 1000 bytes'
        when not coalesce(jsonb_typeof(p_call -> 'command') in ('object', 'null'), true)
             or not coalesce(jsonb_typeof(p_call #> '{command,body}') in ('object', 'null'), true)
             or octet_length(p_call #>> '{command,subject}') > 200
        then 'a command must be an object: subject has at most 200 bytes, or is missing, and body is an object'
        when p_call ->> 'kind' = 'child' then heliograph._wrong_child(p_call -> 'child', p_drafts) end);
end $$;

-- _wrong_wait: null, or which key of a call that a turn waits for, of its command or of its child is unknown, or of
--   another type.
create function heliograph._wrong_wait(p_call jsonb) returns text
    language sql immutable as $$
    select coalesce(
        heliograph._wrong_keys('p_items[].calls[]', p_call,
                               '{call_id,step_id,tool,kind,effect,timeout_seconds,token,after_execution,may_override,'
                               'fails_fast,taint,is_trusted,command,child,circuit_breaker,rates}'),
        heliograph._wrong_type('p_items[].calls[]', p_call, 'taint', 'array'),
        heliograph._wrong_type('p_items[].calls[]', p_call, 'child', 'object'),
        heliograph._wrong_type('p_items[].calls[]', p_call, 'token', 'string'),
        heliograph._wrong_type('p_items[].calls[].command', p_call -> 'command', 'subject', 'string'),
        case when p_call ? 'circuit_breaker'
             then heliograph._wrong_circuit('p_items[].calls[].circuit_breaker', p_call -> 'circuit_breaker') end,
        case when p_call ? 'rates'
             then heliograph._wrong_rates('p_items[].calls[].rates', p_call -> 'rates') end,
        heliograph._wrong_keys('p_items[].calls[].command', p_call -> 'command',
                               '{subject,body,pool,priority}'),
        heliograph._wrong_keys('p_items[].calls[].child', p_call -> 'child',
                               '{agent,instance,turn_id,activation,cause,priority,pool,max_attempts,ttl_seconds,'
                               'context_box_id,result_fields,budget,callback_url}'),
        heliograph._wrong_cause('p_items[].calls[].child', p_call #> '{child,cause}'))
$$;

-- _wrong_call: null, or the problem of a call.
create function heliograph._wrong_call(p_call jsonb) returns text
    language sql immutable as $$
    select case
        when heliograph._wrong_id('a call id', p_call ->> 'call_id') is not null
        then heliograph._wrong_id('a call id', p_call ->> 'call_id')
        when not coalesce(octet_length(p_call ->> 'tool') between 1 and 200, false)
        then 'the tool of a call must have 1 to 200 bytes'
        when octet_length(p_call ->> 'step_id') > 200 then 'a step id must have at most 200 bytes'
        when not coalesce(p_call ->> 'effect' in ('pure', 'idempotent', 'transactional', 'once'), true)
        then 'an effect must be pure, idempotent, transactional or once'
        when not coalesce((p_call ->> 'timeout_seconds')::float8 between 0 and 31622400, true)
        then 'timeout_seconds must be between 0 and 366 days, or null'
        when p_call #>> '{command,pool}' is not null
             and heliograph._wrong_id('a pool', p_call #>> '{command,pool}') is not null
        then heliograph._wrong_id('the pool of a command', p_call #>> '{command,pool}')
        when not coalesce((p_call #>> '{command,priority}')::integer, 1) between 0 and 3
        then 'the priority of a command must be between 0 (low) and 3 (critical)' end
$$;

-- _wrong_child: null, or the problem of the child of a call; p_drafts: the number of signals of its item.
create function heliograph._wrong_child(p_child jsonb, p_drafts integer) returns text
    language plpgsql immutable as $$
begin
    return (case
            when not coalesce(octet_length(p_child ->> 'agent') between 1 and 200 and p_child ->> 'agent' !~ '/', false)
            then 'the agent of a child must have 1 to 200 bytes and no slash'
            when p_child ->> 'instance' is not null and heliograph._wrong_id('an instance',
                                                                             p_child ->> 'instance') is not null
            then heliograph._wrong_id('the instance of a child', p_child ->> 'instance')
            when p_child ->> 'instance' ~ '/' then 'the instance of a child must not contain a slash'
            when heliograph._wrong_id('a turn id', p_child ->> 'turn_id') is not null
            then heliograph._wrong_id('the turn id of a child', p_child ->> 'turn_id')
            when p_child -> 'budget' is not null and heliograph._wrong_amounts('the budget of a child',
                                                                               p_child -> 'budget') is not null
            then heliograph._wrong_amounts('the budget of a child', p_child -> 'budget')
            when heliograph._wrong_url(p_child -> 'callback_url') is not null
                then heliograph._wrong_url(p_child -> 'callback_url')
            when octet_length(p_child ->> 'context_box_id') > 200
                then 'the context_box_id of a child must have at most 200 bytes'
            when not coalesce((p_child ->> 'activation')::bigint between 0 and p_drafts - 1, false)
            then 'the activation of a child must be the index of a signal of the same item'
            when jsonb_typeof(p_child -> 'cause') = 'number'
                and not (p_child ->> 'cause')::bigint between 0 and p_drafts - 1
            then 'the cause of a child must be the index of a signal of the same item, or {"seq": n}'
            end);
end $$;

-- _reject_calls: null, or the rejection of an item of suspend with too many calls or a too large command.
create function heliograph._reject_calls(
    p_project text, p_turn_id text, p_calls jsonb, p_limits heliograph.project_limits
) returns jsonb language plpgsql stable as $$
begin
    return (
        select coalesce(
            (select heliograph._reject_waits(count(*), p_limits.waits_max)
               from (select tool_call_id from heliograph.turn_waiting_tools
                      where project_id = p_project and agent_turn_id = p_turn_id
                     union
                     select c ->> 'call_id' from jsonb_array_elements(p_calls) c) w
             having count(*) > p_limits.waits_max),
            (select heliograph._over_limit(
                        'payload_too_large', format('the command of call %s has %s bytes', c.item ->> 'call_id',
                                                    octet_length((c.item -> 'command')::text)),
                        p_limits.result_bytes_max, 'store large arguments elsewhere and pass their locations',
                        'result_bytes_max')
               from jsonb_array_elements(p_calls) with ordinality c (item, n)
              where octet_length((c.item -> 'command')::text) > p_limits.result_bytes_max order by c.n limit 1)));
end $$;
