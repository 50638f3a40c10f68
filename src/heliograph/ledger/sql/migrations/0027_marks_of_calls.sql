-- The marks of calls with a circuit breaker or a rate limit have types of their own. PostgreSQL parses the check of a table in each
-- statement that writes to the table, but the check of a type once per session, and most calls have no mark.

alter table heliograph.turn_waiting_tools drop constraint turn_waiting_tools_circuit;
alter table heliograph.turn_waiting_tools drop constraint turn_waiting_tools_rate_check;

-- without their checks at first: such a change of a column rewrites no table
create domain heliograph.circuit_mark as jsonb;
create domain heliograph.rate_mark as jsonb;
alter table heliograph.turn_waiting_tools
    alter column circuit type heliograph.circuit_mark,
    alter column rate type heliograph.rate_mark;

-- {type, target, generation, is_trial}
alter domain heliograph.circuit_mark add constraint circuit_mark_check check (value is null or coalesce(
    case jsonb_typeof(value) when 'object' then value - array['type', 'target', 'generation', 'is_trial'] = '{}' end
    and value ->> 'type' in ('tool_call', 'delegation', 'model_call')
    and octet_length(value ->> 'target') between 1 and 200
    and jsonb_path_exists(value, 'strict $ ? (@.target.type() == "string" && @.is_trial.type() == "boolean"
        && @.generation.type() == "number" && @.generation >= 0 && @.generation <= 1000000000000000
        && @.generation.floor() == @.generation)'), false));
-- {starts_at, rates, is_waiting}
alter domain heliograph.rate_mark add constraint rate_mark_check check (value is null or coalesce(
    value - array['starts_at', 'rates', 'is_waiting'] = '{}'
    and coalesce(jsonb_typeof(value -> 'is_waiting') = 'boolean', true)
    and (value ->> 'starts_at')::timestamptz between '2000-01-01 00:00:00+00' and '2200-01-01 00:00:00+00'
    and jsonb_array_length(value -> 'rates') <= 8
    and not jsonb_path_exists(value, 'strict $.rates[*] ? (@.type() != "object")')
    and not jsonb_path_exists(value, '$.rates[*] ? (!(
        (@.kind == "tool" || @.kind == "agent" || @.kind == "model" || @.kind == "model_tokens" || @.kind == "route")
        && @.name.type() == "string"
        && @.count.type() == "number" && @.count >= 1 && @.count <= 1000000000 && @.count.floor() == @.count
        && @.seconds.type() == "number" && @.seconds >= 1 && @.seconds <= 3600 && @.seconds.floor() == @.seconds
        && @.amount.type() == "number" && @.amount >= 1 && @.amount <= 1000000000 && @.amount.floor() == @.amount))'),
    false));
