-- Checkpoints of runs, from which a fork reads its state (decision 0082), and the places of leases in the log of their run.

create table heliograph.run_checkpoints (
    project_id  text collate "C" not null,
    run_id      text collate "C" not null,
    seq         bigint not null check (seq > 0),  -- the last position of the commit after which it was made
    state       jsonb not null,
    memory      jsonb not null,                   -- the parts of the run's memory that a fork takes over
    activations integer not null check (activations >= 0),
    in_progress bigint[] not null,                -- the activations of the turns that had not ended
    primary key (project_id, run_id, seq)
);
alter table heliograph.run_checkpoints alter column project_id set (n_distinct = 1);

-- what the planner is to believe before it has seen any: see 0002_planner.sql
insert into heliograph.run_checkpoints (project_id, run_id, seq, state, memory, activations, in_progress)
select 'planner', 'run_' || n % 100, n, '{}', '{}', 0, '{}' from generate_series(1, 1000) n;
analyze heliograph.run_checkpoints;
truncate heliograph.run_checkpoints;

-- the newest signal of the run when the claim read it; null: claimed before this migration
alter table heliograph.leases add column started_seq bigint;

-- serves prune, and forks, which read turns by the signals that activated them
drop index heliograph.turn_of_run;
create index turn_of_run on heliograph.agent_turns (project_id, run_id, activation_seq, queue_seq);
