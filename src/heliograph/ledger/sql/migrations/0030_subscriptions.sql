-- Durable subscriptions: a name, its patterns, and a position in the log of each run that it has not read to its end. And the patterns
-- that a login may subscribe to.

create table heliograph.subscriptions (
    project_id text collate "C" not null,
    name       text collate "C" not null check (octet_length(name) between 1 and 200),
    patterns   text[] collate "C" not null check (cardinality(patterns) between 1 and 100),
    created_by name not null,
    created_at timestamptz not null,
    feed_id      bigint not null,                      -- of run_feed: all runs up to here are entered, also late commits
    next_feed_id bigint,                               -- all runs up to here will be, once no transaction
    next_xid     xid8,                                 -- before this one is in progress
    primary key (project_id, name),
    check ((next_feed_id is null) = (next_xid is null))
);
alter table heliograph.subscriptions alter column project_id set (n_distinct = 1);

create table heliograph.run_feed (                     -- runs that began while the project had a subscription
    project_id text collate "C" not null,
    feed_id    bigint generated always as identity,
    run_id     text collate "C" not null,
    primary key (project_id, feed_id)
);
alter table heliograph.run_feed alter column project_id set (n_distinct = 1);

create table heliograph.subscription_runs (
    project_id text collate "C" not null,
    name       text collate "C" not null,
    run_id     text collate "C" not null,
    position   bigint not null check (position >= 0),  -- signals up to here are delivered, or match no pattern
    subscriber text collate "C",                       -- the process that has the signals after it
    lease_until timestamptz,                           -- until then no other process receives them
    feed_id    bigint,                                 -- of run_feed; null: the run began before the subscription
    primary key (project_id, name, run_id),
    check (subscriber is null or lease_until is not null)
) with (fillfactor = 50);                              -- each change updates its row in place
alter table heliograph.subscription_runs alter column project_id set (n_distinct = 1);

create table heliograph.signal_grants (
    project_id text collate "C" not null,
    role_name  name not null,                          -- a login: session_user, which no SET ROLE changes
    pattern    text collate "C" not null check (octet_length(pattern) between 1 and 200),
    granted_by name not null,
    granted_at timestamptz not null,
    primary key (project_id, role_name, pattern)
);
alter table heliograph.signal_grants alter column project_id set (n_distinct = 1);

-- what the planner is to believe before it has seen any: see 0002_planner.sql
insert into heliograph.subscription_runs (project_id, name, run_id, position)
select 'planner', 'subscription_' || n % 10, 'run_' || n, 0 from generate_series(1, 1000) n;
analyze heliograph.subscription_runs;
truncate heliograph.subscription_runs;
insert into heliograph.run_feed (project_id, run_id) select 'planner', 'run_' || n from generate_series(1, 1000) n;
analyze heliograph.run_feed;
truncate heliograph.run_feed restart identity;
