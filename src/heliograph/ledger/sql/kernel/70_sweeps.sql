-- Sweeps: each way for a turn to be stuck has a sweep that finds it. They run in any worker, several at once: they skip
-- candidates that another transaction has locked. See 70_sweep_batches.sql for what happens to a candidate.
-- p_limit: the maximum number of candidates; null for all.

-- sweep_leases: recover running turns with an expired lease (K7, L0-111, G-62). Below max_attempts the head becomes
--   dispatched under the next epoch, its attempts increase by one, its inbox rows are pending again, and it keeps its
--   place in the claim order (K22). At max_attempts the turn ends as failed. A turn with a pending stop ends as
--   canceled, unless another worker can still run its terminate phase.
--   Returns {recovered: [turn_id], ended: [turn_id], failed: [{turn_id, code, message, ended}], targets}. failed:
--   turns whose data made the sweep fail; ended: true after the fifth failure, when the turn has ended as failed
--   (K23).
--   raises: see _enter; 22023 for a negative limit
--   locks:  the heads found, then their runs
create function heliograph.sweep_leases(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    perform heliograph._check_sweep(p_limit);
    return heliograph._sweep_each(p_project, 'lease', array(
        select h.active_agent_turn_id from heliograph.agent_state_head h
         where h.project_id = p_project and h.status = 'running' and h.lease_until <= p_now
         order by h.sweep_failures, h.lease_until, h.agent_id limit p_limit for update skip locked),
        '{recovered,ended}', p_now);
end $$;

-- sweep_expired: end as timeout the turns that are past their expires_at, queued ones included (K19). Turns that wait
--   for humans are skipped: see 48_human_waits.sql. In a project with dispatch_seconds_max, also end up to p_limit
--   turns that no worker has claimed in time: see 73_unclaimed.sql.
--   Returns {ended: [turn_id], failed: [{turn_id, code, message, ended}], targets}, see sweep_leases.
--   raises: see _enter; 22023 for a negative limit
--   locks:  the heads found, then their runs
create function heliograph.sweep_expired(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_due text[];
begin
    perform heliograph._check_sweep(p_limit);
    -- in the order of the index, so that at most p_limit are read, however many are due
    v_due := array(
        select t.agent_turn_id from heliograph.agent_turns t
          join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = t.agent_id
         where t.project_id = p_project and t.state <> 'done' and t.human_wait_since is null and t.expires_at <= p_now
           and h.sweep_failures = 0
         order by t.expires_at, t.agent_turn_id limit p_limit for update of h skip locked);
    if p_limit is null or cardinality(v_due) < p_limit then  -- few are due: retry those that failed before
        v_due := v_due || array(
            select t.agent_turn_id from heliograph.agent_turns t
              join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = t.agent_id
             where t.project_id = p_project and t.agent_turn_id = any (array(
                   select d.agent_turn_id from heliograph.agent_turns d
                    cross join lateral (  -- each head by its key, because few have failed
                          select x.sweep_failures from heliograph.agent_state_head x
                           where x.project_id = p_project and x.agent_id = d.agent_id offset 0) r
                    where d.project_id = p_project and d.state <> 'done' and d.human_wait_since is null
                      and d.expires_at <= p_now
                      and r.sweep_failures > 0
                    order by r.sweep_failures, d.expires_at, d.agent_turn_id limit p_limit - cardinality(v_due)))
             order by h.agent_id for update of h skip locked);
    end if;
    v_due := v_due || heliograph._unclaimed(p_project, v_due, p_limit, p_now);
    return heliograph._sweep_each(p_project, 'expiry', v_due, '{ended}', p_now);
end $$;

-- sweep_queued: dispatch queued turns of idle agents (K10b). The end of a turn dispatches the next one (K8), so this
--   sweep finds work only after a defect.
--   Returns {dispatched: [turn_id], failed: [{turn_id, code, message, ended}], targets}, see sweep_leases.
--   raises: see _enter; 22023 for a negative limit
--   locks:  the heads found, and the runs of turns that end as failed
create function heliograph.sweep_queued(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    perform heliograph._check_sweep(p_limit);
    return heliograph._sweep_each(p_project, 'queue', array(
        select w.turn_id
          from heliograph._first_queued(p_project) w
          join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = w.agent_id
              and h.status = 'idle'
         order by h.sweep_failures, h.agent_id limit p_limit for update of h skip locked), '{dispatched}', p_now);
end $$;

-- _first_queued: the oldest queued turn of each agent, read from agent to agent, however many wait for each.
create function heliograph._first_queued(p_project text) returns table (agent_id text, turn_id text)
    language sql stable as $$
    with recursive waiting (agent_id, turn_id) as (
        (select t.agent_id, t.agent_turn_id from heliograph.agent_turns t
          where t.project_id = p_project and t.state = 'queued' order by t.agent_id, t.queue_seq limit 1)
        union all
        select n.agent_id, n.agent_turn_id
          from waiting w
         cross join lateral (
               select t.agent_id, t.agent_turn_id from heliograph.agent_turns t
                where t.project_id = p_project and t.state = 'queued' and t.agent_id > w.agent_id
                order by t.agent_id, t.queue_seq limit 1) n)
    select waiting.agent_id, waiting.turn_id from waiting
$$;

-- sweep_bells: list the queues (_queue_name) with a turn that no worker has claimed for p_older_seconds (K10): the
--   caller notifies their workers again. The time of a deferred turn counts from its due time. This sweep changes
--   nothing (K20).
--   raises: see _enter; 22023 for seconds that are not between 0 and 366 days
create function heliograph.sweep_bells(p_project text, p_older_seconds float8, p_now timestamptz) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_before timestamptz;
begin
    if not coalesce(p_older_seconds between 0 and 31622400, false) then
        raise exception using errcode = '22023',
            message = format('seconds must be between 0 and 31622400, not %s', p_older_seconds);
    end if;
    v_before := p_now - make_interval(secs => p_older_seconds);
    return (
        -- steps from queue to queue, so many waiting heads cost no time
        with recursive ready (target, pool) as (
            (select h.target, h.pool from heliograph.agent_state_head h
              where h.project_id = p_project and h.status = 'dispatched' and h.due_at is null
              order by h.target, h.pool limit 1)
            union all
            select n.target, n.pool
              from ready r
             cross join lateral (
                   select h.target, h.pool from heliograph.agent_state_head h
                    where h.project_id = p_project and h.status = 'dispatched' and h.due_at is null
                      and (h.target, h.pool) > (r.target, r.pool)
                    order by h.target, h.pool limit 1) n)
        select coalesce(jsonb_agg(distinct queue order by queue), '[]')
          from (select heliograph._queue_name(r.target, r.pool) as queue from ready r
                 where exists (select from heliograph.agent_state_head h
                                where h.project_id = p_project and h.status = 'dispatched' and h.due_at is null
                                  and h.target = r.target and h.pool = r.pool and h.moved_at <= v_before)
                union all
                select heliograph._queue_name(h.target, h.pool) from heliograph.agent_state_head h
                 where h.project_id = p_project and h.due_at <= v_before) late);
end $$;

-- _sweep_lease: see sweep_leases.
--   raises: any error that the turn's rows cause
--   locks:  the run; the caller holds the head
create function heliograph._sweep_lease(
    p_project text, p_agent_id text, p_turn_id text, p_now timestamptz
) returns jsonb
    language plpgsql as $$
declare
    v_attempts integer;
    v_max integer;
    v_woken text[];
begin
    v_woken := case when not heliograph._may_terminate(p_project, p_agent_id, p_now)
                    then heliograph._end_if_stopping(p_project, p_agent_id, p_now) end;
    if v_woken is null then
        select attempts + 1, max_attempts into v_attempts, v_max from heliograph.agent_turns
         where project_id = p_project and agent_turn_id = p_turn_id;
        if v_attempts < v_max then
            update heliograph.agent_turns set attempts = v_attempts
             where project_id = p_project and agent_turn_id = p_turn_id;
            return jsonb_build_object('recovered', p_turn_id, 'woken',
                                      jsonb_build_array(heliograph._release_head(p_project, p_agent_id, null, p_now)));
        end if;
        v_woken := heliograph._end_if_stopping(p_project, p_agent_id, p_now);
    end if;
    if v_woken is null then
        v_woken := heliograph._end_by_kernel(p_project, p_turn_id, 'failed', 'RESOURCE_EXHAUSTED',
                                               format('lost its worker %s time%s', v_attempts,
                                                      case when v_attempts <> 1 then 's' end), p_now);
    end if;
    return jsonb_build_object('ended', p_turn_id, 'woken', to_jsonb(v_woken));
end $$;

-- _sweep_expiry: see sweep_expired. The turn may have ended with another one of its agent, or been suspended, since it
--   was found.
--   raises: any error that the turn's rows cause
--   locks:  the run; the caller holds the head
create function heliograph._sweep_expiry(p_project text, p_turn_id text, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_turn heliograph.agent_turns;
begin
    select * into v_turn from heliograph.agent_turns
     where project_id = p_project and agent_turn_id = p_turn_id and state <> 'done' and human_wait_since is null
       and expires_at <= p_now;
    if not found or heliograph._defer_expiry(p_project, v_turn, p_now) then
        return '{}';
    end if;
    return jsonb_build_object('ended', p_turn_id, 'woken', to_jsonb(coalesce(
               case when v_turn.state = 'active'
                    then heliograph._end_if_stopping(p_project, v_turn.agent_id, p_now) end,
               heliograph._end_by_kernel(
                   p_project, p_turn_id, 'timeout', 'TIMEOUT', heliograph._expiry_message(p_project, v_turn), p_now,
                   '{"scope": "total"}', exists (
                       select from heliograph.turn_waiting_tools w
                        where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.state = 'open'
                          and w.kind = 'human'
                          and w.taint is not null)))));
end $$;

-- _sweep_queue: see sweep_queued.
--   raises: any error that the turn's rows cause
--   The caller holds the head.
create function heliograph._sweep_queue(
    p_project text, p_agent_id text, p_turn_id text, p_now timestamptz
) returns jsonb
    language sql as $$
    select case when cardinality(woken) = 0 then '{}'
                else jsonb_build_object('dispatched', p_turn_id, 'woken', to_jsonb(woken)) end
      from heliograph._dispatch_next(p_project, array[p_agent_id], p_now) woken
$$;
