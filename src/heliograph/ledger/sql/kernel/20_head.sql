-- The head: lock it, move it. Lock order everywhere: heads by agent id, then runs by run id; nothing else is locked.

-- _lock_heads: lock heads in ascending agent id (kernel.md section 1, Batches). Answers the ids of those locked.
--   raises: nothing; an agent that does not exist is skipped
--   locks:  those rows of agent_state_head
create function heliograph._lock_heads(p_project text, p_agent_ids text[]) returns text[]
    language plpgsql as $$
begin
    return array(
        select agent_id from heliograph.agent_state_head
         where project_id = p_project and agent_id = any (p_agent_ids)
         order by agent_id for update);
end $$;

-- _lock_runs: lock runs in ascending run id, after every head that the call needs.
--   raises: nothing
--   locks:  those rows of runs
create function heliograph._lock_runs(p_project text, p_run_ids text[]) returns void
    language plpgsql as $$
begin
    perform from heliograph.runs
      where project_id = p_project and run_id = any (p_run_ids)
      order by run_id for update;
end $$;

-- _dispatch_next: give each idle head among p_agent_ids its oldest queued turn (K8, L0-34, L0-43).
--   idle -> dispatched, epoch + 1; the turn becomes active, its inbox row pending under the new epoch.
--   Each table is asked for p_agent_ids, although the joins say the same: a plan made while the tables were empty may
--   start a join at any of them, and must not start it with all that the project has.
--   Answers the targets to ring after the commit.
--   raises: 23505 if an agent would have two active turns
--   locks:  nothing; the caller holds the heads
create function heliograph._dispatch_next(p_project text, p_agent_ids text[], p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_targets text[];
begin
    with next as (
        select distinct on (t.agent_id) t.agent_id, t.agent_turn_id, t.priority, t.run_id, t.activation_seq
          from heliograph.agent_state_head h
          join heliograph.agent_turns t using (project_id, agent_id)
         where h.project_id = p_project and h.agent_id = any (p_agent_ids)
           and h.status = 'idle' and t.state = 'queued'
           and t.agent_id = any (p_agent_ids)
         order by t.agent_id, t.queue_seq
    ), moved as (
        update heliograph.agent_state_head h
           set status = 'dispatched', turn_epoch = h.turn_epoch + 1, active_agent_turn_id = n.agent_turn_id,
               priority = n.priority, ready_at = p_now, trace_id = n.run_id,
               parent_step_id = heliograph._signal_id(n.run_id, n.activation_seq),
               moved_at = greatest(p_now, h.moved_at)  -- time never runs backwards on one head
          from next n
         where h.project_id = p_project and h.agent_id = n.agent_id and h.status = 'idle'
           and h.agent_id = any (p_agent_ids)
        returning h.agent_id, h.target, h.turn_epoch, h.active_agent_turn_id
    ), activated as (
        update heliograph.agent_turns t set state = 'active'
          from moved m
         where t.project_id = p_project and t.agent_turn_id = m.active_agent_turn_id
           and t.state = 'queued' and t.agent_id = any (p_agent_ids)
    ), pending as (
        update heliograph.agent_inbox i
           set status = 'pending', turn_epoch = m.turn_epoch, next_retry_at = p_now
          from moved m
         where i.project_id = p_project and i.agent_id = m.agent_id
           and i.agent_turn_id = m.active_agent_turn_id and i.status = 'queued'
           and i.agent_id = any (p_agent_ids)
    )
    select array_agg(distinct target order by target) into v_targets from moved;
    return coalesce(v_targets, '{}');
end $$;

-- _owns: the owner gate. True when the caller's turn and epoch are the head's, and it is running (L0-02, L0-41).
--   raises: nothing
--   locks:  nothing; the caller holds the head
create function heliograph._owns(p_project text, p_agent_id text, p_turn_id text, p_epoch bigint) returns boolean
    language sql stable as $$
    select exists (
        select from heliograph.agent_state_head
         where project_id = p_project and agent_id = p_agent_id
           and status = 'running' and active_agent_turn_id = p_turn_id and turn_epoch = p_epoch)
$$;
