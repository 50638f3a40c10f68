-- Recordings: the values from outside that turns and reactions of a recorded run have read, one row per part (decision
-- 0067). A part is the start of a run, one claim of a turn, or one reaction; it is written in the commit that ends it.

create table heliograph.recordings (
    project_id text collate "C" not null,
    run_id     text collate "C" not null,
    -- start, reaction:VERSION, or TURN:EPOCH
    part       text collate "C" not null check (octet_length(part) between 1 and 300),
    body       text collate "C" not null,  -- JSON, which only the recorder and replays read
    -- of the recording: in its start alone
    name       text collate "C" check (octet_length(name) between 1 and 200),
    tags       text[] not null default '{}',
    at         timestamptz not null,
    primary key (project_id, run_id, part)
);

-- a body is written once and read rarely, so it is neither compressed nor, if it fits into a page, moved
alter table heliograph.recordings alter column body set storage external;
alter table heliograph.recordings set (toast_tuple_target = 8160);

alter table heliograph.recordings alter column project_id set (n_distinct = 1);

create index recordings_names on heliograph.recordings (project_id, name, at) where name is not null;

-- what the planner is to believe before it has seen any: see 0002_planner.sql
insert into heliograph.recordings (project_id, run_id, part, body, at)
select 'planner', 'run_' || n % 100, 'turn_' || n || ':1', '{}', '2000-01-01' from generate_series(1, 1000) n;
analyze heliograph.recordings;
truncate heliograph.recordings;
