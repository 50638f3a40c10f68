-- Values of circuit breakers that a hand-written statement could store, and that would fail the calls of other turns.

-- Repair such rows: a call without its mark counts for nothing, and a breaker without its row is closed.
update heliograph.turn_waiting_tools set circuit = null
 where circuit is not null and not coalesce(
    case jsonb_typeof(circuit) when 'object' then circuit - array['type', 'target', 'generation', 'is_trial'] = '{}' end
    and circuit ->> 'type' in ('tool_call', 'delegation', 'model_call')
    and octet_length(circuit ->> 'target') between 1 and 200
    and jsonb_path_exists(circuit, 'strict $ ? (@.target.type() == "string" && @.is_trial.type() == "boolean"
        && @.generation.type() == "number" && @.generation >= 0 && @.generation <= 1000000000000000
        && @.generation.floor() == @.generation)'), false);
delete from heliograph.circuit_breakers
 where not (octet_length(target) between 1 and 200 and generation between 0 and 1000000000000000
    and coalesce(open_until between '1900-01-01 00:00:00+00' and '2300-01-01 00:00:00+00', true)
    and changed_at between '1900-01-01 00:00:00+00' and '2300-01-01 00:00:00+00');
delete from heliograph.circuit_calls
 where not (octet_length(target) between 1 and 200 and generation between 0 and 1000000000000000
    and coalesce(expires_at between '1900-01-01 00:00:00+00' and '2300-01-01 00:00:00+00', true)
    and coalesce(ended_at between '1900-01-01 00:00:00+00' and '2300-01-01 00:00:00+00', true)
    and (status <> 'trial' or expires_at is not null));

alter table heliograph.turn_waiting_tools add constraint turn_waiting_tools_circuit check (circuit is null or coalesce(
    case jsonb_typeof(circuit) when 'object' then circuit - array['type', 'target', 'generation', 'is_trial'] = '{}' end
    and circuit ->> 'type' in ('tool_call', 'delegation', 'model_call')
    and octet_length(circuit ->> 'target') between 1 and 200
    and jsonb_path_exists(circuit, 'strict $ ? (@.target.type() == "string" && @.is_trial.type() == "boolean"
        && @.generation.type() == "number" && @.generation >= 0 && @.generation <= 1000000000000000
        && @.generation.floor() == @.generation)'), false));
alter table heliograph.circuit_breakers add constraint circuit_breakers_values check (
    octet_length(target) between 1 and 200 and generation between 0 and 1000000000000000
    and coalesce(open_until between '1900-01-01 00:00:00+00' and '2300-01-01 00:00:00+00', true)
    and changed_at between '1900-01-01 00:00:00+00' and '2300-01-01 00:00:00+00');
alter table heliograph.circuit_calls add constraint circuit_calls_values check (
    octet_length(target) between 1 and 200 and generation between 0 and 1000000000000000
    and coalesce(expires_at between '1900-01-01 00:00:00+00' and '2300-01-01 00:00:00+00', true)
    and coalesce(ended_at between '1900-01-01 00:00:00+00' and '2300-01-01 00:00:00+00', true)
    and (status <> 'trial' or expires_at is not null));
