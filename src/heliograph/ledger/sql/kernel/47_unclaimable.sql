-- Turns that no worker can claim, because PostgreSQL cannot build the reply to their claim: for example, the results of
-- their calls exceed the 256 MB of one JSON value. Such a turn would block all others of its target until it expires.

-- fail_unclaimable: end as failed the turn that claim takes next, if claim raises an error for this turn (K23). A
--   worker calls this after its claim of a single turn failed.
--   p_targets: as for claim.
--   Returns {turn_id, run_id, target, message, targets}, or {} if no turn is ready or claim takes the turn. The turn
--   ends as canceled if a stop is pending. Otherwise it ends with the code RESOURCE_EXHAUSTED if the reply to its claim
--   is too large, and with INTERNAL_ERROR for any other reason.
--   raises: see _enter; 22023 for targets that _check_targets rejects
--   locks:  the head, then its run
create function heliograph.fail_unclaimable(
    p_project text, p_target text[], p_pool text[], p_agents jsonb[], p_run_id text[], p_now timestamptz
) returns jsonb language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_head heliograph.agent_state_head;
    v_why text;
    v_message text;
    v_woken text[];
begin
    perform heliograph._check_targets(p_target, p_pool, p_agents, p_run_id);
    select h.* into v_head
      from unnest(heliograph._claimable(p_project, p_target, p_pool, p_agents, p_run_id, 1, p_now)) a (agent_id)
      join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = a.agent_id;
    if v_head.agent_id is null then
        return '{}';
    end if;
    -- its head is locked already
    v_why := heliograph._unclaimable_reason(p_project, p_target, p_pool, p_agents, p_run_id, p_now);
    if v_why is null then
        return '{}';
    end if;
    v_message := format('no worker can claim it: %s', v_why);
    v_woken := coalesce(
        heliograph._end_if_stopping(p_project, v_head.agent_id, p_now),
        heliograph._end_by_kernel(
            p_project, v_head.active_agent_turn_id, 'failed',
            case when v_why like '54%' then 'RESOURCE_EXHAUSTED' else 'INTERNAL_ERROR' end, v_message, p_now));
    return jsonb_build_object('turn_id', v_head.active_agent_turn_id, 'run_id', v_head.run_id, 'target', v_head.target,
                              'message', v_message) || heliograph._bells(p_project, v_woken);
end $$;

-- _unclaimable_reason: the SQLSTATE and the message that a claim of one turn raises; null where it raises none. Nothing
--   is claimed.
--   raises: errors of the server itself (classes 40, 53, 55, 57, 58)
--   The rollback releases its locks.
create function heliograph._unclaimable_reason(
    p_project text, p_target text[], p_pool text[], p_agents jsonb[], p_run_id text[], p_now timestamptz
) returns text language plpgsql as $$
begin
    perform heliograph.claim(p_project, p_target, p_pool, p_agents, p_run_id, 'fail_unclaimable', 1, 1, p_now);
    raise exception using errcode = 'HG001', message = 'it can be claimed';  -- undoes the claim
exception when others then
    if sqlstate ~ '^(40|53|55|57|58)' then
        raise;
    end if;
    return case when sqlstate <> 'HG001' then format('%s %s', sqlstate, left(sqlerrm, 1000)) end;
end $$;
