-- Releasing: a running turn returns to the queue, by its owner or after its lease, unless a pending stop ends it.

-- release: return running turns to the queue without ending them, for example when their worker closes (L0-111). The
--   head becomes dispatched under the next epoch and keeps its place. A release does not count as an attempt.
--   p_items: [{agent_id, turn_id, epoch, failure}]. failure: {code, message} of a turn that no worker can run; it ends
--   as failed.
--   Returns [{turn_id, outcome, targets}] in the order of p_items. 'ok'. 'stopped': a stop was pending and has ended
--   the turn, unless another worker can still run its terminate phase. 'stale'.
--   raises: see _enter; 22023 for a failure without a code of 1 to 200 bytes and a message of 1 to 4000
--   locks:  the heads, and the runs of stopped turns
create function heliograph.release(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_item jsonb;
    v_woken text[];
    v_outcome text;
    v_answer jsonb := '[]';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{agent_id,turn_id,epoch,failure}');
    perform heliograph._check_failure(i -> 'failure') from jsonb_array_elements(p_items) i where i ? 'failure';
    perform heliograph._lock_items(p_project, p_items);
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_woken := '{}';
        v_outcome := 'stale';
        if heliograph._owns(p_project, v_item ->> 'agent_id', v_item ->> 'turn_id', (v_item ->> 'epoch')::bigint) then
            v_woken := case when v_item ? 'failure'
                              or not heliograph._may_terminate(p_project, v_item ->> 'agent_id', p_now)
                            then heliograph._end_if_stopping(p_project, v_item ->> 'agent_id', p_now) end;
            v_outcome := 'stopped';
            if v_woken is null and v_item ? 'failure' then
                v_woken := heliograph._end_by_kernel(p_project, v_item ->> 'turn_id', 'failed',
                                                       v_item #>> '{failure,code}',
                                                       v_item #>> '{failure,message}', p_now);
                v_outcome := 'ok';
            elsif v_woken is null then
                v_woken := array[heliograph._release_head(p_project, v_item ->> 'agent_id', null, p_now)];
                v_outcome := 'ok';
            end if;
        end if;
        v_answer := v_answer || (jsonb_build_object('turn_id', v_item ->> 'turn_id', 'outcome', v_outcome)
                                 || heliograph._bells(p_project, v_woken));
    end loop;
    return v_answer;
end $$;

-- _check_failure: reject a failure without a code or without a message.
--   raises: 22023
create function heliograph._check_failure(p_failure jsonb) returns void
    language plpgsql immutable as $$
begin
    if heliograph._wrong_keys('p_items[].failure', p_failure, '{code,message}') is not null then
        raise exception using errcode = '22023',
        message = heliograph._wrong_keys('p_items[].failure', p_failure, '{code,message}');
    elsif not coalesce(octet_length(p_failure ->> 'code') between 1 and 200
                    and octet_length(p_failure ->> 'message') between 1 and 4000, false) then
        raise exception using errcode = '22023',
            message = 'a failure must have a code of 1 to 200 bytes and a message of 1 to 4000';
    end if;
end $$;

-- _release_head: take a running turn from its owner: running -> dispatched, epoch + 1, lease closed, its messages
--   pending again, due at p_due_at or at once. It keeps its place in the claim order (K22). Returns the agent.
--   The caller holds the head.
create function heliograph._release_head(
    p_project text, p_agent_id text, p_due_at timestamptz, p_now timestamptz
) returns text
    language plpgsql as $$
declare
    v_head heliograph.agent_state_head;
    v_now timestamptz;
begin
    select * into v_head from heliograph.agent_state_head where project_id = p_project and agent_id = p_agent_id;
    v_now := greatest(heliograph._not_before_cards(p_project, v_head.active_agent_turn_id, p_now), v_head.moved_at);
    update heliograph.leases set ended_at = v_now
     where project_id = p_project and agent_id = p_agent_id and turn_epoch = v_head.turn_epoch;
    update heliograph.agent_state_head
       set status = 'dispatched', turn_epoch = turn_epoch + 1, owner = null, lease_until = null, phase = null,
           due_at = p_due_at, moved_at = v_now
     where project_id = p_project and agent_id = p_agent_id;
    update heliograph.agent_inbox set status = 'pending', turn_epoch = v_head.turn_epoch + 1
     where project_id = p_project and agent_turn_id = v_head.active_agent_turn_id and status = 'processing';
    return p_agent_id;
end $$;

-- _may_terminate: whether a graceful stop of a turn is pending, and another worker can still run its terminate phase.
--   The caller holds the head.
create function heliograph._may_terminate(p_project text, p_agent_id text, p_now timestamptz) returns boolean
    language sql stable as $$
    select exists (
        select from heliograph.agent_state_head
         where project_id = p_project and agent_id = p_agent_id and terminates and force_at > p_now)
$$;

-- _end_if_stopping: end a running turn with a pending graceful stop. Returns the agents that it woke, or null without a
--   pending stop. The caller holds the head and the run.
create function heliograph._end_if_stopping(p_project text, p_agent_id text, p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_head heliograph.agent_state_head;
begin
    select * into v_head from heliograph.agent_state_head where project_id = p_project and agent_id = p_agent_id;
    if v_head.stop_requested_at is null then
        return null;
    end if;
    return heliograph._end_by_kernel(p_project, v_head.active_agent_turn_id, 'canceled', 'CANCELED',
                                     coalesce(v_head.stop_reason, 'stopped'), p_now);
end $$;
