-- What the planner is to believe about these tables before it has seen any data.
--
-- A plan is cached per connection, and the first calls of a new database are planned on empty tables. Then every scan
-- of a project looks as cheap as one row, joins start from whatever the project has, and each call costs as much as
-- the project is long: measured, 20 turns a second instead of thousands until autovacuum came by. So the tables are
-- filled once with what a project at work looks like, analyzed, and emptied; statistics outlive the rows.
-- 95_plans.sql turns off what would still read a whole table while it is small.

-- a project_id never selects: most databases have one project, and a large one is slow first
alter table heliograph.runs             alter column project_id set (n_distinct = 1);
alter table heliograph.agent_state_head alter column project_id set (n_distinct = 1);
alter table heliograph.agent_turns      alter column project_id set (n_distinct = 1);
alter table heliograph.agent_inbox      alter column project_id set (n_distinct = 1);
alter table heliograph.execution_edges  alter column project_id set (n_distinct = 1);
alter table heliograph.cards            alter column project_id set (n_distinct = 1);
alter table heliograph.leases           alter column project_id set (n_distinct = 1);
alter table heliograph.outbox           alter column project_id set (n_distinct = 1);
alter table heliograph.pruned           alter column project_id set (n_distinct = 1);
alter table heliograph.boxes            alter column project_id set (n_distinct = 1);
alter table heliograph.blobs            alter column project_id set (n_distinct = 1);
alter table heliograph.signals          alter column project_id set (n_distinct = 1);
alter table heliograph.turn_waiting_tools alter column project_id set (n_distinct = 1);

do $$
declare
    v_at timestamptz := '2000-01-01';
begin
    if exists (select from heliograph.runs) then
        return;  -- real data says more than these rows could
    end if;
    -- 1000 ended runs of one turn and ten signals; then a handful of each that is still under way
    insert into heliograph.runs (project_id, run_id, target, status, outcome, request_hash, state, memory, owed,
                                 created_at, updated_at, ended_at)
    select 'planner', 'run_' || n, 'target', case when n > 20 then 'ended' else 'running' end,
           case when n > 20 then 'success' end, 'hash', '{}', '{}', case when n > 2 then 0 else 1 end,
           v_at + n * interval '1 s', v_at + n * interval '1 s', case when n > 20 then v_at + n * interval '1 s' end
      from generate_series(1, 1000) n;
    insert into heliograph.agent_state_head (project_id, agent_id, run_id, agent_name, target, status,
                                             active_agent_turn_id, ready_at, owner, lease_until, moved_at)
    select 'planner', 'run_' || n || '/agent', 'run_' || n, 'agent', 'target',
           case when n > 20 then 'idle' when n > 10 then 'dispatched' else 'running' end,
           case when n <= 20 then 'turn_' || n end, case when n <= 20 then v_at + n * interval '1 s' end,
           case when n <= 10 then 'worker' end, case when n <= 10 then v_at + n * interval '1 s' end, v_at
      from generate_series(1, 1000) n;
    insert into heliograph.agent_turns (project_id, agent_turn_id, agent_id, run_id, state, outcome, max_attempts,
                                        cause_seq, activation_seq, output_box_id, deliverable_card_id, created_at,
                                        expires_at, finished_at)
    select 'planner', 'turn_' || n, 'run_' || n || '/agent', 'run_' || n,
           case when n > 30 then 'done' when n > 20 then 'queued' else 'active' end,
           case when n > 30 then 'success' end, 5, 1, 2, 'box_' || n, case when n > 30 then 'card_' || n end,
           v_at + n * interval '1 s', v_at + n * interval '1 h', case when n > 30 then v_at + n * interval '1 s' end
      from generate_series(1, 1000) n;
    insert into heliograph.agent_inbox (project_id, agent_id, agent_turn_id, message_type, status, correlation_id,
                                        next_retry_at, created_at)
    select 'planner', 'run_' || n || '/agent', 'turn_' || n, 'turn',
           case when n > 30 then 'consumed' when n > 20 then 'queued' when n > 10 then 'pending' else 'processing' end,
           'sig_' || n, v_at + n * interval '1 s', v_at
      from generate_series(1, 1000) n;
    insert into heliograph.execution_edges (project_id, primitive, edge_phase, run_id, agent_id, agent_turn_id, cause_id,
                                            created_at)
    select 'planner', 'enqueue', 'request', 'run_' || n, 'run_' || n || '/agent', 'turn_' || n, 'sig_' || n, v_at
      from generate_series(1, 1000) n;
    insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
    select 'planner', 'card:turn_' || n || ':end', 'box_' || n, 'turn_' || n, 1, 'task.deliverable', '{}', v_at
      from generate_series(31, 1000) n;
    insert into heliograph.leases (project_id, agent_id, turn_epoch, agent_turn_id, owner, started_at)
    select 'planner', 'run_' || n || '/agent', 2, 'turn_' || n, 'worker', v_at from generate_series(1, 1000) n;
    insert into heliograph.outbox (project_id, kind, key, agent_turn_id, created_at, due_at, published_at)
    select 'planner', 'task_event', 'evt:turn_' || n, 'turn_' || n, v_at, v_at, case when n > 10 then v_at end
      from generate_series(1, 1000) n;
    -- one call for each fifth turn, a few of them open
    insert into heliograph.turn_waiting_tools (project_id, agent_turn_id, tool_call_id, agent_id, run_id, tool, kind,
                                               state, epoch, deadline, status, resolved_position, opened_at, resolved_at)
    select 'planner', 'turn_' || n, 'c1', 'run_' || n || '/agent', 'run_' || n, 'tool', 'tool',
           case when n > 50 then 'resolved' else 'open' end, 2, v_at + n * interval '1 s',
           case when n > 50 then 'success' end, case when n > 50 then 1 end, v_at, case when n > 50 then v_at end
      from generate_series(5, 1000, 5) n;
    insert into heliograph.signals (project_id, run_id, seq, count, entries, at, agent_turn_id, owed)
    select 'planner', 'run_' || r, n, 3, '[{}, {}, {}]', v_at, 'turn_' || r, r <= 2 and n = 7
      from generate_series(1, 1000) r, generate_series(1, 7, 3) n;
    insert into heliograph.pruned (project_id, id, pruned_at)
    select 'planner', 'turn:' || n, v_at + n * interval '1 s' from generate_series(1, 1000) n;
    insert into heliograph.boxes (project_id, box_id, kind, created_at)
    select 'planner', 'context_' || n, 'context', v_at from generate_series(1, 1000) n;
    insert into heliograph.blobs (project_id, blob_id, bytes, content, created_at)
    select 'planner', 'blob_' || n, 2, '{}', v_at from generate_series(1, 1000) n;
    analyze heliograph.pruned, heliograph.boxes, heliograph.blobs;
    analyze heliograph.runs, heliograph.agent_state_head, heliograph.agent_turns, heliograph.agent_inbox,
            heliograph.execution_edges, heliograph.cards, heliograph.turn_waiting_tools, heliograph.leases, heliograph.outbox,
            heliograph.signals;
    -- as long as a table counts as never analyzed, the planner takes it for ten pages, not for none
    truncate heliograph.runs, heliograph.agent_state_head, heliograph.agent_turns, heliograph.agent_inbox,
             heliograph.execution_edges, heliograph.cards, heliograph.turn_waiting_tools, heliograph.leases, heliograph.outbox,
             heliograph.signals, heliograph.pruned, heliograph.boxes, heliograph.blobs restart identity;
end $$;
