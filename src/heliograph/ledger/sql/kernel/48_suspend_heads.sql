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

-- _suspend_heads: suspend the turns of a round that have open waits: running -> suspended, their leases closed, their
--   messages consumed. Open waits are counted here, after everything else is written (K16). Returns the suspended
--   turns. The caller holds the heads.
create function heliograph._suspend_heads(p_project text, p_items jsonb, p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_suspended text[];
    v_human text[];  -- those that wait only for humans
begin
    with item as materialized (
        select i.turn_id, i.epoch, i.phase, coalesce(i."join", 'all') as resumes_on, o.waits, o.deadline, o.is_human,
               coalesce(i.terminates, false) as terminates,
               h.at, h.agent_id, h.run_id, greatest(p_now, h.moved_at) as moved_at
          from jsonb_to_recordset(p_items) as i (agent_id text, turn_id text, epoch bigint, phase text, "join" text,
                                                 seen integer, terminates boolean)
         cross join lateral heliograph._open_waits(p_project, i.turn_id) o
         cross join lateral (
               select x.ctid as at, x.agent_id, x.run_id, x.moved_at from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = i.agent_id offset 0) h
         where o.waits > 0 and not (coalesce(i."join" = 'each', false) and case
               when i.seen is null then exists (
                    select from heliograph.agent_inbox x
                     where x.project_id = p_project and x.agent_turn_id = i.turn_id and x.applied
                       and x.status = 'pending')
               else exists (select from heliograph.turn_waiting_tools x
                             where x.project_id = p_project and x.agent_turn_id = i.turn_id
                               and x.resolved_position > i.seen) end)
    ), lease as (
        update heliograph.leases l set ended_at = f.moved_at
          from (select x.at, i.moved_at from item i cross join lateral (
                       select y.ctid as at from heliograph.leases y
                        where y.project_id = p_project and y.agent_id = i.agent_id
                          and y.turn_epoch = i.epoch offset 0) x) f
         where l.ctid = f.at
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
          from item i where h.ctid = i.at
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

-- _keep_running: keep the other turns of a round running. Their owners receive the results with this answer, so the
--   messages of the results are consumed. signals_emitted counts their new drafts.
--   The caller holds the heads.
create function heliograph._keep_running(p_project text, p_items jsonb, p_suspended text[], p_firsts jsonb)
    returns void language plpgsql as $$
begin
    with item as materialized (
        select i.agent_id, i.turn_id, i.epoch, i.phase, i.signals_emitted,
               coalesce(jsonb_array_length(i.signals), 0) as count,
               (p_firsts ->> i.turn_id)::bigint as first_seq
          from jsonb_to_recordset(p_items) as i
               (agent_id text, turn_id text, epoch bigint, phase text, signals_emitted integer, signals jsonb)
         where i.turn_id <> all (p_suspended)
    ), lease as (
        update heliograph.leases l set signals_emitted = l.signals_emitted + f.count, last_append_seq = f.first_seq
          from (select x.at, i.count, i.first_seq from item i cross join lateral (
                       select y.ctid as at from heliograph.leases y
                        where y.project_id = p_project and y.agent_id = i.agent_id and y.turn_epoch = i.epoch
                          and i.count > 0 and not coalesce(y.signals_emitted > i.signals_emitted, false) offset 0) x) f
         where l.ctid = f.at
    ), message as (
        update heliograph.agent_inbox m set status = 'processing', turn_epoch = f.epoch
          from (select x.at, i.epoch from item i cross join lateral (
                       select y.ctid as at from heliograph.agent_inbox y
                        where y.project_id = p_project and y.agent_turn_id = i.turn_id and y.applied
                          and y.status = 'pending' offset 0) x) f
         where m.ctid = f.at
    )
    update heliograph.agent_state_head h set phase = f.phase
      from (select x.at, i.phase from item i cross join lateral (
                   select y.ctid as at from heliograph.agent_state_head y
                    where y.project_id = p_project and y.agent_id = i.agent_id and y.phase <> i.phase offset 0) x) f
     where h.ctid = f.at;
end $$;
