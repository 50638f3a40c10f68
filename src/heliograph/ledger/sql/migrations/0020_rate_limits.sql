-- Rate limits: token buckets that all workers share. See 15_rate_limits.sql.

create table heliograph.rate_buckets (  -- a bucket without a row is full
    project_id text collate "C" not null,
    kind       text collate "C" not null check (kind in ('tool', 'agent', 'model', 'model_tokens', 'route')),
    name       text collate "C" not null,
    -- the limit of the last call: tokens_max in `seconds`
    tokens_max bigint not null check (tokens_max between 1 and 1000000000),
    seconds    integer not null check (seconds between 1 and 3600),
    -- in nanoseconds since 1970, until the year 2200: the bucket is full then, if nothing is taken
    full_at    bigint not null check (full_at between 0 and 7258118400000000000),
    last_start bigint not null check (last_start between 0 and 7258118400000000000),  -- the latest start of a call
    -- [[start, nanoseconds]]: how far from full it was before starts
    peaks      jsonb not null check (
        jsonb_array_length(peaks) <= 100 and not jsonb_path_exists(peaks, 'strict $[*] ? (@.size() != 2)')
        and not jsonb_path_exists(peaks, 'strict $[*][*] ? (
            !(@.type() == "number" && @ >= 0 && @ <= 8000000000000000000 && @.floor() == @))')),
    primary key (project_id, kind, name)
) with (fillfactor = 70);
alter table heliograph.rate_buckets alter column project_id set (n_distinct = 1);

-- {starts_at, rates} of a call that has taken tokens; null: it has taken none
-- An invalid one would fail all calls of its commit, not only its own.
alter table heliograph.turn_waiting_tools add column rate jsonb check (rate is null or coalesce(
    rate - array['starts_at', 'rates'] = '{}'
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

-- of a delegated turn that waits for a token: it begins no earlier
alter table heliograph.agent_turns add column starts_at timestamptz;

-- what the planner assumes before it has seen any: see 0002_planner.sql
insert into heliograph.rate_buckets (project_id, kind, name, tokens_max, seconds, full_at, last_start, peaks)
select 'planner', 'tool', 'tool_' || n, 10, 1, 0, 0, '[]' from generate_series(1, 1000) n;
analyze heliograph.rate_buckets;
truncate heliograph.rate_buckets;
