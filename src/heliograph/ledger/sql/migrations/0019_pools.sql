-- Pools: groups of workers. A turn names the pool whose workers may claim it, and so does the command of a tool. The
-- commit that writes a turn or a command chooses its pool, and nothing changes it (decision 0045).

alter table heliograph.agent_turns add column pool text collate "C" not null default 'default';
alter table heliograph.agent_state_head add column pool text collate "C" not null default 'default';  -- of its active turn
alter table heliograph.workers add column pools jsonb not null default '["default"]' check (jsonb_typeof(pools) = 'array');

alter table heliograph.outbox add column pool text collate "C" not null default 'default';                     -- of a cmd
alter table heliograph.outbox add column priority smallint not null default 1 check (priority between 0 and 3);  -- of a cmd

drop index heliograph.head_ready;
-- serves claim and sweep_bells
create index head_ready on heliograph.agent_state_head (project_id, target, pool, priority desc, ready_at, agent_id)
    where status = 'dispatched' and due_at is null;
drop index heliograph.outbox_commands;
-- serves take_commands
create index outbox_commands on heliograph.outbox (project_id, tool, pool, priority desc, outbox_id)
    where published_at is null and kind = 'cmd';
