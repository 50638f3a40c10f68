-- The common part of all sweeps. Candidates are locked first, read again under the lock, and handled in lock order,
-- each in a savepoint of its own. A candidate that fails is undone, listed in "failed" and counted on its head, and the
-- next sweep handles it after all others. After five failures its turn is ended as failed (code INTERNAL_ERROR), and
-- its entry in "failed" has "ended" (K23). If even that cannot be written, it is listed and counted as before.

-- _sweep_each: try each of these turns by one sweep, in the lock order: p_sweep is lease, expiry, queue, wait, report,
--   stuck or stop. Returns {move: [turn_id] for each of p_moves, failed, targets}.
--   locks:  the runs, ascending; the caller holds the heads
create function heliograph._sweep_each(p_project text, p_sweep text, p_turn_ids text[], p_moves text[],
                                       p_now timestamptz)
    returns jsonb language plpgsql as $$
declare
    v_turn record;
    v_results jsonb := '[]';
begin
    for v_turn in
        select t.agent_turn_id, t.agent_id from heliograph.agent_turns t
         where t.project_id = p_project and t.agent_turn_id = any (p_turn_ids)
         order by t.run_id, t.agent_id, t.queue_seq
    loop
        v_results := v_results || heliograph._try_sweep(p_project, p_sweep, v_turn.agent_id, v_turn.agent_turn_id,
                                                        p_now);
    end loop;
    return (
        select jsonb_object_agg(move, coalesce((
                   select jsonb_agg(r -> move order by n) from jsonb_array_elements(v_results) with ordinality e (r, n)
                    where r ? move), '[]'))
               || heliograph._bells(p_project, array(
                   select jsonb_array_elements_text(r -> 'woken') from jsonb_array_elements(v_results) r))
          from unnest(p_moves || '{failed}') move);
end $$;

-- _try_sweep: handle one candidate of one sweep in a savepoint. Answers {move: turn_id, woken}; {} if the candidate
--   needs no change any more; or {failed: {turn_id, code, message, ended}, woken}. After a failure only its count is
--   written or, from the fifth failure on, the end of the turn.
--   raises: errors of the server itself (classes 40, 53, 57, 58)
--   locks:  the run; the caller holds the head
create function heliograph._try_sweep(p_project text, p_sweep text, p_agent_id text, p_turn_id text, p_now timestamptz)
    returns jsonb language plpgsql as $$
declare
    v_failed jsonb;
    v_failures integer;
    v_woken text[];
begin
    return case p_sweep when 'lease' then heliograph._sweep_lease(p_project, p_agent_id, p_turn_id, p_now)
                        when 'expiry' then coalesce(
                            heliograph._sweep_unclaimed(p_project, p_agent_id, p_turn_id, p_now),
                            heliograph._sweep_expiry(p_project, p_turn_id, p_now))
                        when 'queue' then heliograph._sweep_queue(p_project, p_agent_id, p_turn_id, p_now)
                        when 'wait' then heliograph._sweep_wait(p_project, p_agent_id, p_turn_id, p_now)
                        when 'report' then heliograph._sweep_report(p_project, p_agent_id, p_turn_id, p_now)
                        when 'stuck' then heliograph._sweep_stuck(p_project, p_agent_id, p_turn_id, p_now)
                        when 'stop' then heliograph._sweep_stop(p_project, p_agent_id, p_turn_id, p_now) end;
exception when others then
    if heliograph._is_server_error(sqlstate) then
        raise;  -- no candidate has failed
    end if;
    v_failed := jsonb_build_object('turn_id', p_turn_id, 'code', sqlstate, 'message', sqlerrm);
    update heliograph.agent_state_head set sweep_failures = sweep_failures + 1
     where project_id = p_project and agent_id = p_agent_id returning sweep_failures into v_failures;
    -- not a failure of the candidate: another transaction held a lock for too long
    if v_failures >= 5 and sqlstate <> '55P03' then
        v_woken := heliograph._end_as_failed(p_project, p_agent_id, p_turn_id, format(
            'the kernel failed on this turn %s times, the last time with %s', v_failures, sqlstate), p_now);
    end if;
    return case when v_woken is null then jsonb_build_object('failed', v_failed)
                else jsonb_build_object('failed', v_failed || '{"ended": true}', 'woken', to_jsonb(v_woken)) end;
end $$;

-- _end_as_failed: end a turn as failed after its last sweep failure (K23), in a savepoint. Returns the agents that it
--   woke; null if the turn has ended already, or if this fails, too.
--   raises: see _try_sweep
--   locks:  the run; the caller holds the head
create function heliograph._end_as_failed(p_project text, p_agent_id text, p_turn_id text, p_message text,
                                          p_now timestamptz)
    returns text[] language plpgsql as $$
declare
    v_woken text[];
begin
    if not exists (select from heliograph.agent_turns
                    where project_id = p_project and agent_turn_id = p_turn_id and state <> 'done') then
        return null;
    end if;
    v_woken := heliograph._end_by_kernel(p_project, p_turn_id, 'failed', 'INTERNAL_ERROR', p_message, p_now);
    update heliograph.agent_state_head set sweep_failures = 0 where project_id = p_project and agent_id = p_agent_id;
    return v_woken;
exception when others then
    if heliograph._is_server_error(sqlstate) then
        raise;
    end if;
    return null;
end $$;

-- _is_server_error: whether the server lacks a resource, is about to stop or undid the transaction (classes 40, 53, 57
--   and 58).
create function heliograph._is_server_error(p_sqlstate text) returns boolean
    language sql immutable as $$
    select p_sqlstate ~ '^(40|53|57|58)'
$$;

-- _check_sweep: reject a negative limit.
--   raises: 22023
create function heliograph._check_sweep(p_limit integer) returns void
    language plpgsql immutable as $$
begin
    if p_limit < 0 then
        raise exception using errcode = '22023', message = format('limit must be 0 or more, not %s', p_limit);
    end if;
end $$;
