-- Calls that wait for their start, and the rows of targets that prune deletes.

-- is_waiting of a call with a rate limit: its owner waits for the start, so its effect has not happened.

alter table heliograph.turn_waiting_tools drop constraint turn_waiting_tools_rate_check;
alter table heliograph.turn_waiting_tools add constraint turn_waiting_tools_rate_check check (rate is null or coalesce(
    rate - array['starts_at', 'rates', 'is_waiting'] = '{}'
    and coalesce(jsonb_typeof(rate -> 'is_waiting') = 'boolean', true)
    and (rate ->> 'starts_at')::timestamptz between '2000-01-01 00:00:00+00' and '2200-01-01 00:00:00+00'
    and jsonb_array_length(rate -> 'rates') <= 8
    and not jsonb_path_exists(rate, 'strict $.rates[*] ? (@.type() != "object")')
    and not jsonb_path_exists(rate, '$.rates[*] ? (!(
        (@.kind == "tool" || @.kind == "agent" || @.kind == "model" || @.kind == "model_tokens" || @.kind == "route")
        && @.name.type() == "string"
        && @.count.type() == "number" && @.count >= 1 && @.count <= 1000000000 && @.count.floor() == @.count
        && @.seconds.type() == "number" && @.seconds >= 1 && @.seconds <= 3600 && @.seconds.floor() == @.seconds
        && @.amount.type() == "number" && @.amount >= 1 && @.amount <= 1000000000 && @.amount.floor() == @.amount))'),
    false));

-- the days since 1970 of last_start. It changes once a day, so the other updates of a bucket touch no index.
alter table heliograph.rate_buckets add column last_day integer not null default 0;
update heliograph.rate_buckets set last_day = last_start / 86400000000000;
create index rate_buckets_by_day on heliograph.rate_buckets (project_id, last_day, kind, name);
create index circuit_calls_by_end on heliograph.circuit_calls (project_id, ended_at, position);
create index circuit_breakers_by_change on heliograph.circuit_breakers (project_id, changed_at, type, target);
