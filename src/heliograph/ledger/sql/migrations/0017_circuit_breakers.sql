-- Circuit breakers: which targets fail, and are not called for a time. See 14_circuit_breakers.sql.

create table heliograph.circuit_breakers (  -- a target without a row is closed, at generation 0
    project_id text collate "C" not null,
    type       text collate "C" not null check (type in ('tool_call', 'delegation', 'model_call')),
    target     text collate "C" not null,
    state      text collate "C" not null check (state in ('closed', 'open', 'half_open')),
    generation bigint not null,                 -- one more at each change of the state; results of older ones do not count
    open_until timestamptz,
    changed_at timestamptz not null,
    primary key (project_id, type, target),
    check ((state = 'open') = (open_until is not null))
) with (fillfactor = 70);
alter table heliograph.circuit_breakers alter column project_id set (n_distinct = 1);

-- the calls that decide the next state: failures in a row while it is closed, trials and their results while half open
create table heliograph.circuit_calls (
    project_id    text collate "C" not null,
    type          text collate "C" not null,
    target        text collate "C" not null,
    generation    bigint not null,
    position      bigint generated always as identity,
    agent_turn_id text collate "C" not null,
    call_id       text collate "C" not null,
    status        text collate "C" not null check (status in ('trial', 'success', 'failure')),
    expires_at    timestamptz,                  -- of a trial: without a result by then it counts as a failure
    ended_at      timestamptz,
    primary key (project_id, type, target, generation, position),
    check ((status = 'trial') = (ended_at is null))
) with (fillfactor = 70);
alter table heliograph.circuit_calls alter column project_id set (n_distinct = 1);

-- {type, target, generation, is_trial} of a call that a breaker has admitted; null: it has none
alter table heliograph.turn_waiting_tools add column circuit jsonb;

-- what the planner assumes before it has seen any: see 0002_planner.sql
insert into heliograph.circuit_breakers (project_id, type, target, state, generation, changed_at)
select 'planner', 'tool_call', 'tool_' || n, 'closed', 0, '2000-01-01' from generate_series(1, 1000) n;
insert into heliograph.circuit_calls (project_id, type, target, generation, agent_turn_id, call_id, status, ended_at)
select 'planner', 'tool_call', 'tool_' || n % 1000, 0, 'turn_' || n, 'c1', 'failure', '2000-01-01'
  from generate_series(1, 3000) n;
analyze heliograph.circuit_breakers, heliograph.circuit_calls;
truncate heliograph.circuit_breakers, heliograph.circuit_calls restart identity;
