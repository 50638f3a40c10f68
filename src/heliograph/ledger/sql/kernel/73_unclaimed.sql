-- The dispatch timeout: a dispatched turn that no worker claims ends as timeout, where the project sets
-- dispatch_seconds_max. It is part of sweep_expired. The time runs from agent_state_head.moved_at, the moment at which
-- the head became dispatched, or from due_at of a deferred turn. No sweep writes these for a turn that remains
-- dispatched, so no sweep delays the end (K20).

-- _unclaimed: up to p_limit turns that have waited for a worker for too long, without those in p_except; none without
--   the limit.
--   locks:  the heads found
create function heliograph._unclaimed(
    p_project text, p_except text[], p_limit integer, p_now timestamptz
) returns text[]
    language plpgsql as $$
declare
    v_before constant timestamptz :=
        p_now - make_interval(secs => (heliograph._limits(p_project)).dispatch_seconds_max);
    v_found text[] := '{}';
begin
    if v_before is null then
        return v_found;
    end if;
    v_found := array(
        select h.active_agent_turn_id from heliograph.agent_state_head h
         where h.project_id = p_project and h.status = 'dispatched' and h.due_at is null and h.moved_at <= v_before
           and h.active_agent_turn_id <> all (p_except)
         order by h.sweep_failures, h.moved_at, h.agent_id limit p_limit for update skip locked);
    return v_found || array(
        select h.active_agent_turn_id from heliograph.agent_state_head h
         where h.project_id = p_project and h.due_at <= v_before and h.active_agent_turn_id <> all (p_except)
         order by h.sweep_failures, h.due_at, h.agent_id limit p_limit - cardinality(v_found) for update skip locked);
end $$;

-- _sweep_unclaimed: end a turn that has waited for a worker for too long, as canceled if a stop is pending; null for
--   any other turn.
--   raises: any error that the turn's rows cause
--   locks:  the run; the caller holds the head
create function heliograph._sweep_unclaimed(
    p_project text, p_agent_id text, p_turn_id text, p_now timestamptz
) returns jsonb
    language plpgsql as $$
declare
    v_seconds constant integer := (heliograph._limits(p_project)).dispatch_seconds_max;
begin
    if v_seconds is null or not exists (
            select from heliograph.agent_state_head
             where project_id = p_project and agent_id = p_agent_id and active_agent_turn_id = p_turn_id
               and status = 'dispatched'
               and coalesce(due_at, moved_at) <= p_now - make_interval(secs => v_seconds)) then
        return null;
    end if;
    return jsonb_build_object('ended', p_turn_id, 'woken', to_jsonb(coalesce(
               heliograph._end_if_stopping(p_project, p_agent_id, p_now),
               heliograph._end_by_kernel(
                   p_project, p_turn_id, 'timeout', 'TIMEOUT',
                   heliograph._unclaimed_message(p_project, p_agent_id, v_seconds), p_now, '{"scope": "turn"}'))));
end $$;

-- _unclaimed_message: the error message of an agent's turn that no worker claimed in time. It names the pool, or
--   running_max where that keeps workers from claiming.
create function heliograph._unclaimed_message(p_project text, p_agent_id text, p_seconds integer) returns text
    language sql stable as $$
    select case when (select count(*) from heliograph.agent_state_head h
                       where h.project_id = p_project and h.lease_until is not null) >= l.running_max
                then format('it did not begin within %s s (dispatch_seconds_max), because the project runs at most %s '
                            'turns at once (running_max): raise a limit, or send less', p_seconds, l.running_max)
                else format('no worker of pool %s claimed it within %s s (dispatch_seconds_max)', h.pool, p_seconds) end
      from heliograph._limits(p_project) l
     cross join heliograph.agent_state_head h
     where h.project_id = p_project and h.agent_id = p_agent_id
$$;
