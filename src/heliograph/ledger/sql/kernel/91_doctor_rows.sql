-- The doctor's checks of single rows. The tables that each turn writes to have no constraints for them, because
-- PostgreSQL parses constraints in each statement that writes to the table (decision 0104). Test databases have them.

-- _doctor_rows: H4 to H7, I19 to I21, R9, R10, W12, W13, B7 and R11.
create function heliograph._doctor_rows(p_project text) returns table (found text, subject text)
    language sql stable as $$
    select 'H4 a head has a turn unless it is idle', h.agent_id from heliograph.agent_state_head h
     where h.project_id = p_project and (h.status = 'idle') <> (h.active_agent_turn_id is null)
    union all
    select 'H5 a running head has an owner and a lease, and no other has one', h.agent_id
      from heliograph.agent_state_head h
     where h.project_id = p_project
       and ((h.status = 'running') <> (h.lease_until is not null) or (h.status = 'running') <> (h.owner is not null))
    union all
    select 'H6 a suspended head waits for calls, and no other does', h.agent_id from heliograph.agent_state_head h
     where h.project_id = p_project and ((h.status = 'suspended') <> (h.waiting_tool_count > 0)
                                         or (h.status = 'suspended') <> (h.resumes_on is not null))
    union all
    select 'H7 only a dispatched head is deferred, and only a running or terminating one has a pending stop', h.agent_id
      from heliograph.agent_state_head h
     where h.project_id = p_project
       and ((h.due_at is not null and h.status <> 'dispatched')
            or (h.stop_requested_at is null) <> (h.force_at is null)
            or (h.stop_requested_at is not null and h.status <> 'running'
                and not (h.status = 'dispatched' and h.terminates)))
    union all
    select 'I19 a turn has an outcome and a time of its end once it is done', t.agent_turn_id
      from heliograph.agent_turns t
     where t.project_id = p_project and ((t.state = 'done') <> (t.outcome is not null)
                                         or (t.state = 'done') <> (t.finished_at is not null))
    union all
    select 'I20 a child has a parent and its call', t.agent_turn_id from heliograph.agent_turns t
     where t.project_id = p_project and (t.parent_turn_id is null) <> (t.parent_call_id is null)
    union all
    select 'I21 a message about a call names the call, and one about a stop its signal',
           i.agent_turn_id || ' ' || i.inbox_id from heliograph.agent_inbox i
     where i.project_id = p_project and i.message_type not in ('turn', 'ui_action') and i.correlation_id is null
    union all
    select 'R9 a run has an outcome and a time of its end once it has ended', r.run_id from heliograph.runs r
     where r.project_id = p_project and ((r.status = 'ended') <> (r.outcome is not null)
                                         or (r.status = 'ended') <> (r.ended_at is not null))
    union all
    select 'R10 a fork has a place in the log of its run', r.run_id from heliograph.runs r
     where r.project_id = p_project and ((r.forked_from is null) <> (r.forked_seq is null) or r.forked_seq <= 0)
    union all
    select 'R11 a commit counts its signals', s.run_id || ' ' || s.seq from heliograph.signals s
     where s.project_id = p_project and jsonb_array_length(s.entries) <> s.count
    union all
    select 'W12 a call has a status and a position once it is resolved, and a time once it is not open',
           w.agent_turn_id || ' ' || w.tool_call_id from heliograph.turn_waiting_tools w
     where w.project_id = p_project and ((w.state = 'resolved') <> (w.status is not null)
                                         or (w.state = 'resolved') <> (w.resolved_position is not null)
                                         or (w.state = 'open') <> (w.resolved_at is null))
    union all
    select 'W13 a call of a child names the child', w.agent_turn_id || ' ' || w.tool_call_id
      from heliograph.turn_waiting_tools w
     where w.project_id = p_project and (w.kind = 'child') <> (w.child_turn_id is not null)
    union all
    select 'B7 a card of a turn has the epoch of its writer', c.card_id from heliograph.cards c
     where c.project_id = p_project and (c.agent_turn_id is null) <> (c.turn_epoch is null)
$$;
