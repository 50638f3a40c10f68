-- Suspending heads: the second half of suspend. A turn with open calls is suspended; another turn keeps running (K16).

-- _open_waits: the open calls for which a turn is suspended: their number, the nearest deadline, and whether all of
--   them are questions to humans. Inline calls never count, because their owner records them.
create function heliograph._open_waits(p_project text, p_turn_id text) returns table (
    waits bigint, deadline timestamptz, is_human boolean
) language sql stable as $$
    select count(*), min(w.deadline), bool_and(w.kind = 'human')
      from heliograph.turn_waiting_tools w
     where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.state = 'open' and w.kind <> 'inline'
     offset 0
$$;

-- _suspend_turns: suspend the turns of a round whose calls are written, or keep them running.
--   Returns p_answers with the answers of the turns that keep running.
--   locks:  see _resolve; the caller holds the heads and the runs
create function heliograph._suspend_turns(
    p_project text, p_items heliograph.suspension[], p_answers jsonb[], p_limits heliograph.project_limits,
    p_now timestamptz
) returns jsonb[] language plpgsql as $$
declare
    v_item heliograph.suspension;
    v_early text[] := '{}';
    v_suspended text[];
    v_running heliograph.suspension[] := '{}';
begin
    foreach v_item in array p_items loop
        if v_item.is_early then
            v_early := v_early || v_item.turn_id;
        end if;
    end loop;
    if cardinality(v_early) > 0 then
        perform heliograph._apply_early(p_project, v_early, p_limits, p_now);
    end if;
    -- after the children and the early reports, because the log has their signals already
    foreach v_item in array p_items loop
        if heliograph._crosses_checkpoint(v_item.first_seq - 1,
                                          v_item.first_seq - 1 + jsonb_array_length(v_item.signals)) then
            perform heliograph._checkpoint(p_project, v_item.run_id, v_item.first_seq - 1);
        end if;
    end loop;
    v_suspended := heliograph._suspend_heads(p_project, p_items, p_now);
    if cardinality(v_suspended) < cardinality(p_items) then
        foreach v_item in array p_items loop
            if v_item.turn_id <> all (v_suspended) then
                v_running := v_running || v_item;
            end if;
        end loop;
        perform heliograph._keep_running(p_project, v_running);
        foreach v_item in array v_running loop
            p_answers[v_item.place] := coalesce(p_answers[v_item.place], '{}') || jsonb_build_object(
                'outcome', 'resolved',
                'waits', coalesce((select w.waits from heliograph._waits(p_project, v_item.turn_id) w), '[]'));
        end loop;
    end if;
    return p_answers;
end $$;

-- _suspend_heads: suspend the turns of a round that have open waits: running -> suspended, their leases closed, their
--   messages consumed. Open waits are counted here, after everything else is written (K16). Returns the suspended
--   turns. The caller holds the heads.
create function heliograph._suspend_heads(p_project text, p_items heliograph.suspension[], p_now timestamptz)
    returns text[] language plpgsql as $$
declare
    v_suspended text[];
    v_human text[];  -- those that wait only for humans
begin
    with item as materialized (
        select i.turn_id, i.phase, i.resumes_on, i.terminates, i.head_at, i.lease_at, i.moved_at, o.*
          from unnest(p_items) i
         cross join lateral heliograph._open_waits(p_project, i.turn_id) o
         where o.waits > 0 and not (i.resumes_on = 'each' and case
               when i.seen is null then exists (
                    select from heliograph.agent_inbox x
                     where x.project_id = p_project and x.agent_turn_id = i.turn_id and x.applied
                       and x.status = 'pending')
               else exists (select from heliograph.turn_waiting_tools x
                             where x.project_id = p_project and x.agent_turn_id = i.turn_id
                               and x.resolved_position > i.seen) end)
    ), lease as (
        update heliograph.leases l set ended_at = i.moved_at from item i where l.ctid = i.lease_at
    ), message as (
        update heliograph.agent_inbox m set status = 'consumed', consumed_at = p_now
          from (select x.at from item i cross join lateral (
                       select y.ctid as at from heliograph.agent_inbox y
                        where y.project_id = p_project and y.agent_turn_id = i.turn_id and y.status = 'processing'
                          and y.payload is null offset 0) x) f
         where m.ctid = f.at
    ), head as (
        update heliograph.agent_state_head h
           set status = 'suspended', owner = null, lease_until = null, phase = coalesce(i.phase, h.phase),
               waiting_tool_count = i.waits, resume_deadline = i.deadline, resumes_on = i.resumes_on,
               terminates = i.terminates,
               expecting_correlation_id = null, moved_at = i.moved_at
          from item i where h.ctid = i.head_at
        returning h.active_agent_turn_id, i.is_human
    )
    select array_agg(active_agent_turn_id order by active_agent_turn_id),
           array_agg(active_agent_turn_id order by active_agent_turn_id) filter (where is_human)
      into v_suspended, v_human from head;
    if v_human is not null then
        perform heliograph._begin_human_wait(p_project, v_human);
    end if;
    return coalesce(v_suspended, '{}');
end $$;

-- _begin_human_wait: set the human_wait_since of turns that have just been suspended, and wait only for humans; see
--   48_human_waits.sql. The caller holds the heads and the runs.
create function heliograph._begin_human_wait(p_project text, p_turns text[]) returns void
    language plpgsql as $$
begin
    update heliograph.agent_turns t set human_wait_since = f.moved_at
      from (select x.at, h.moved_at
              from unnest(p_turns) u (turn_id)
             cross join lateral (
                   select y.ctid as at, y.agent_id, y.run_id from heliograph.agent_turns y
                    where y.project_id = p_project and y.agent_turn_id = u.turn_id offset 0) x
             cross join lateral (
                   select y.status from heliograph.runs y
                    where y.project_id = p_project and y.run_id = x.run_id offset 0) r
             cross join lateral (
                   select y.moved_at from heliograph.agent_state_head y
                    where y.project_id = p_project and y.agent_id = x.agent_id offset 0) h
             where r.status = 'running') f
     where t.ctid = f.at;
end $$;

-- _keep_running: keep these turns of a round running. Their owners receive the results with this answer, so the
--   messages of the results are consumed. signals_emitted counts their new drafts.
--   The caller holds the heads.
create function heliograph._keep_running(p_project text, p_items heliograph.suspension[]) returns void
    language plpgsql as $$
begin
    with lease as (
        update heliograph.leases l
           set signals_emitted = l.signals_emitted + i.written, last_append_seq = i.first_seq
          from unnest(p_items) i where l.ctid = i.lease_at and i.written > 0
    ), message as (
        update heliograph.agent_inbox m set status = 'processing', turn_epoch = f.epoch
          from (select x.at, i.epoch from unnest(p_items) i cross join lateral (
                       select y.ctid as at from heliograph.agent_inbox y
                        where y.project_id = p_project and y.agent_turn_id = i.turn_id and y.applied
                          and y.status = 'pending' offset 0) x) f
         where m.ctid = f.at
    )
    update heliograph.agent_state_head h set phase = i.phase
      from unnest(p_items) i where h.ctid = i.head_at and h.phase <> i.phase;
end $$;
