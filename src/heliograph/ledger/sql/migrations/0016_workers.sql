-- Workers: the processes that run turns, and their last heartbeat. For operators; no lease depends on these rows.

create table heliograph.workers (
    project_id       text collate "C" not null,
    worker           text collate "C" not null,   -- the owner in the leases
    label            text collate "C" not null,
    version          text collate "C" not null,               -- of the program
    capabilities     jsonb not null check (jsonb_typeof(capabilities) = 'array'),
    metadata         jsonb not null check (jsonb_typeof(metadata) = 'object'),
    slots            integer not null check (slots >= 0),
    slots_used       integer not null check (slots_used >= 0),
    interval_seconds numeric check (interval_seconds > 0),  -- null: it sends no heartbeats
    missed_threshold integer not null check (missed_threshold > 0),
    phase            text collate "C" not null check (phase in ('idle', 'init', 'plan', 'act', 'reflect', 'terminate')),
    status           text collate "C" not null check (status in ('healthy', 'degraded', 'unhealthy')),
    metrics          jsonb not null check (jsonb_typeof(metrics) = 'object'),
    warnings         jsonb not null check (jsonb_typeof(warnings) = 'array'),
    started_at       timestamptz not null,
    beat_at          timestamptz not null,
    primary key (project_id, worker)
) with (fillfactor = 50);                          -- each beat updates its row in place
alter table heliograph.workers alter column project_id set (n_distinct = 1);

-- what the planner is to believe before it has seen any: see 0002_planner.sql
insert into heliograph.workers (project_id, worker, label, version, capabilities, metadata, slots, slots_used, interval_seconds,
                                missed_threshold, phase, status, metrics, warnings, started_at, beat_at)
select 'planner', 'worker_' || n, 'worker', '1', '[]', '{}', 16, 0, 30, 3, 'idle', 'healthy', '{}', '[]', '2000-01-01', '2000-01-01'
  from generate_series(1, 100) n;
analyze heliograph.workers;
truncate heliograph.workers;
