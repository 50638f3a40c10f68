-- Liveness: checks that no open work is older than it may become. Cheap enough for every minute: it reads open work by
-- index, and changes nothing.

-- liveness: list work that a worker or a sweep should have done by now. Each check has its own bound plus the interval
--   of one sweep. It returns up to a hundred findings of a kind, the oldest first.
--   Returns [{check, subject, since}], empty when all is well.
--   raises: see _enter
create function heliograph.liveness(p_project text, p_now timestamptz) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_grace constant timestamptz := p_now - interval '10 s';
    v_patience constant timestamptz := p_now - interval '60 s';
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object('check', f.found, 'subject', f.subject, 'since', f.since)
                                  order by f.found, f.since, f.subject), '[]')
          from ((select 'L1 a lease ran out: sweep_leases' as found, agent_id as subject, lease_until as since
                   from heliograph.agent_state_head
                  where project_id = p_project and status = 'running' and lease_until < v_grace order by lease_until,
                  agent_id limit 100)
                union all
                (select 'L2 nobody claims a turn that is ready: a worker, sweep_bells', agent_id, moved_at
                   from heliograph.agent_state_head
                  where project_id = p_project and status = 'dispatched' and due_at is null and moved_at < v_patience
                  order by moved_at, agent_id limit 100)
                union all
                (select 'L3 nobody claims a deferred turn: a worker, sweep_bells', agent_id, due_at
                   from heliograph.agent_state_head
                  where project_id = p_project and due_at < v_patience order by due_at, agent_id limit 100)
                union all
                (select 'L4 a call is overdue: sweep_waits', agent_turn_id || ' ' || tool_call_id, deadline
                   from heliograph.turn_waiting_tools
                  where project_id = p_project and state = 'open' and kind <> 'inline' and deadline < v_grace
                  order by deadline, agent_turn_id, tool_call_id limit 100)
                union all
                (select 'L5 a turn waits for an idle agent: sweep_queued', t.agent_id, t.created_at
                   from heliograph._first_queued(p_project) w
                   join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = w.agent_id
                       and h.status = 'idle'
                   join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = w.turn_id
                  where t.created_at < v_grace order by t.created_at, t.agent_id limit 100)
                union all
                (select 'L6 a turn has outlived its time: sweep_expired', agent_turn_id, expires_at
                   from heliograph.agent_turns
                  where project_id = p_project and state <> 'done' and human_wait_since is null and expires_at < v_grace
                  order by expires_at, agent_turn_id limit 100)
                union all
                (select 'L7 a stop is not carried out: sweep_stops', agent_id, force_at
                   from heliograph.agent_state_head
                  where project_id = p_project and force_at < v_grace order by force_at, agent_id limit 100)
                union all
                (select 'L8 an order is not carried out: sweep_stops, sweep_reports', key, due_at
                   from heliograph.outbox
                  where project_id = p_project and kind in ('report', 'stop') and published_at is null
                    and due_at < v_grace
                  order by due_at, key limit 100)
                union all
                (select 'L9 an event is not published: the relay', key, due_at
                   from heliograph.outbox
                  where project_id = p_project and kind = 'task_event' and published_at is null and due_at < v_patience
                  order by due_at, key limit 100)
                union all
                (select 'L10 a reaction is pending: sweep_pending_reactions', run_id, updated_at
                   from heliograph.runs
                  where project_id = p_project and pending_reactions > 0 and updated_at < v_patience
                  order by updated_at, run_id limit 100)
                union all
                (select 'L11 nobody sends a callback: a worker with HELIOGRAPH_WEBHOOK_SECRETS', callback_id, due_at
                   from heliograph.callbacks
                  where project_id = p_project and state = 'due' and due_at < v_patience order by due_at, callback_id
                      limit 100)
                union all
                (select 'L12 nobody sends a halt: a worker with HELIOGRAPH_GATEWAY_SECRETS', key, due_at
                   from heliograph.outbox
                  where project_id = p_project and kind = 'halt' and published_at is null and due_at < v_patience
                  order by due_at, key limit 100)) f);
end $$;
