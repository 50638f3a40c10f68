-- Budgets: what a turn, and all that it delegates, may spend. See 13_budgets.sql.

create table heliograph.budgets (
    project_id text collate "C" not null,
    turn_id    text collate "C" not null,       -- whose it is: it holds for this turn and its descendants
    kind       text collate "C" not null check (kind in ('tokens', 'micros', 'model_calls', 'tool_calls')),
    most       bigint not null,
    reserved   bigint not null default 0 check (reserved >= 0),  -- by calls that have begun, and of which it is not known yet
    used       bigint not null default 0 check (used >= 0),
    over       bigint not null default 0 check (over >= 0),  -- what calls used beyond what they had reserved, and nothing was left for
    primary key (project_id, turn_id, kind),
    check (used + reserved <= most)
) with (fillfactor = 70);
alter table heliograph.budgets alter column project_id set (n_distinct = 1);

-- the owners of all budgets that hold for a turn, itself among them; null: none does, and nothing here is asked
alter table heliograph.agent_turns add column budgets text[];
-- what an inline call has reserved, by kind, until it is settled
alter table heliograph.turn_waiting_tools add column reserved jsonb;

-- what the planner is to believe before it has seen any: see 0002_planner.sql
insert into heliograph.budgets (project_id, turn_id, kind, most, used)
select 'planner', 'turn_' || n, 'tokens', 1000, n from generate_series(1, 1000) n;
analyze heliograph.budgets;
truncate heliograph.budgets;
