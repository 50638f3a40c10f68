-- Stops that are due: graceful stops after their grace, and stops that a run or the end of a parent has requested.

-- sweep_stops: enforce stops. A turn that has not ended by its force_at ends as canceled. Rows of the outbox of kind
--   stop are delivered as stop would deliver them.
--   p_limit: the maximum of each kind; null for all.
--   Returns {stopped: [turn_id], stopping: [turn_id], owners, failed: [{turn_id, code, message, ended}], targets}, see
--   sweep_leases. owners: the workers to notify, because they have to end a turn or have just lost one.
--   raises: see _enter; 22023 for a negative limit
--   locks:  the heads found, then their runs, then the rows of the outbox
create function heliograph.sweep_stops(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_ordered text[];
    v_due text[];
    v_answer jsonb;
begin
    perform heliograph._check_sweep(p_limit);
    -- rows are read here and locked only with their heads and runs: every writer of such a row has locked these
    v_ordered := array(
        select o.agent_turn_id from heliograph.outbox o
         where o.project_id = p_project and o.kind = 'stop' and o.published_at is null and o.due_at <= p_now
         order by o.due_at, o.outbox_id limit p_limit);
    v_due := array(
        select h.active_agent_turn_id from heliograph.agent_state_head h
         where h.project_id = p_project and h.force_at <= p_now
         order by h.sweep_failures, h.force_at, h.agent_id limit p_limit for update skip locked);
    v_due := v_due || array(
        select t.agent_turn_id from heliograph.agent_turns t
          join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = t.agent_id
         where t.project_id = p_project and t.agent_turn_id = any (v_ordered)
         order by h.agent_id for update of h skip locked);
    v_answer := heliograph._sweep_each(p_project, 'stop', v_due, '{stopped,stopping,owners}', p_now);
    -- last, so that no lock is awaited while these are held
    update heliograph.outbox o
       set deliveries = o.deliveries + 1, due_at = heliograph._redelivery_at(o.deliveries, p_now)
      from (select x.key from heliograph.outbox x
             where x.project_id = p_project and heliograph._is_unpublished(x.published_at)
               and x.key = any (array(select 'stop:' || (f ->> 'turn_id')
                                      from jsonb_array_elements(v_answer -> 'failed') f))
             order by x.key for update skip locked) rejected
     where o.project_id = p_project and o.key = rejected.key;
    return v_answer;
end $$;

-- _sweep_stop: see sweep_stops. A stop in the outbox comes first: it may be stronger than the pending one.
--   raises: any error that the turn's rows cause
--   locks:  the run, then the row of the outbox; the caller holds the head
create function heliograph._sweep_stop(p_project text, p_agent_id text, p_turn_id text, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_order jsonb;
    v_answer jsonb := '{}';
    v_head heliograph.agent_state_head;
begin
    perform heliograph._lock_runs(p_project, array[heliograph._run_of(p_agent_id)]);
    update heliograph.outbox set published_at = p_now, deliveries = deliveries + 1
     where project_id = p_project and key = 'stop:' || p_turn_id and heliograph._is_unpublished(published_at)
       and due_at <= p_now
    returning heliograph._as_object(body) || jsonb_build_object('turn_id', p_turn_id) into v_order;
    if v_order is not null then
        v_answer := heliograph._stop_turn(p_project, v_order, p_now);
    end if;
    select * into v_head from heliograph.agent_state_head where project_id = p_project and agent_id = p_agent_id;
    if v_head.force_at <= p_now and v_head.active_agent_turn_id = p_turn_id then
        v_answer := jsonb_build_object('outcome', 'stopped', 'owner', v_head.owner, 'woken',
                                       to_jsonb(heliograph._end_if_stopping(p_project, p_agent_id, p_now)));
    end if;
    return case when v_answer ->> 'outcome' in ('stopped', 'stopping') then
        jsonb_build_object(v_answer ->> 'outcome', p_turn_id, 'woken', coalesce(v_answer -> 'woken', '[]'))
        || case when v_answer ->> 'owner' is null then '{}' else jsonb_build_object('owners', v_answer -> 'owner') end
        else '{}' end;
end $$;
