-- Delegations: calls of one step that are given up together, see _with_given_up; and callbacks, see 81_callbacks.sql.

alter table heliograph.turn_waiting_tools add column fails_fast boolean not null default false;

-- whom the end of a turn, or of a run, is told to from outside; null: nobody
alter table heliograph.agent_turns add column callback_url text collate "C";
alter table heliograph.runs add column callback_url text collate "C";

create table heliograph.callbacks (
    project_id  text collate "C" not null,
    callback_id text collate "C" not null,      -- what every try of it carries, so that a second one is known by it
    run_id      text collate "C" not null,
    turn_id     text collate "C",               -- null: the run's
    url         text collate "C" not null,
    state       text collate "C" not null check (state in ('due', 'delivered', 'dead')),
    attempts    integer not null default 0,     -- tries that were begun
    due_at      timestamptz,                    -- of the next try, or when one that was begun counts as lost
    last_error  text collate "C",
    created_at  timestamptz not null,
    finished_at timestamptz,
    primary key (project_id, callback_id),
    check ((state = 'due') = (due_at is not null)),
    check ((state = 'due') = (finished_at is null))
) with (fillfactor = 70);
-- serves take_callbacks
create index callback_due on heliograph.callbacks (project_id, due_at, callback_id) where state = 'due';
-- serves those who look
create index callback_made on heliograph.callbacks (project_id, created_at, callback_id);
alter table heliograph.callbacks alter column project_id set (n_distinct = 1);

-- what the planner is to believe before it has seen any: see 0002_planner.sql
insert into heliograph.callbacks (project_id, callback_id, run_id, turn_id, url, state, created_at, due_at, finished_at)
select 'planner', 'callback_' || n, 'run_' || n, 'turn_' || n, 'https://planner.example', case when n <= 10 then 'due' else 'delivered' end,
       '2000-01-01'::timestamptz + n * interval '1 s', case when n <= 10 then '2000-01-01'::timestamptz + n * interval '1 s' end,
       case when n > 10 then '2000-01-02'::timestamptz end
  from generate_series(1, 1000) n;
analyze heliograph.callbacks;
truncate heliograph.callbacks;
