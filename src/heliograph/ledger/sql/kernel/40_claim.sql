-- claim: take up to p_limit dispatched heads and all that hydration needs (L0-40, L0-45, K6, K22).
--   p_targets: [name], or [{target, agents, run_id}] for a worker that has only these agents, or serves only that run;
--   what it cannot run it does not take. dispatched -> running, epoch + 1: the epoch answered is the fencing token, given once (leases).
--   Order: priority, then first ready time, then agent id. A head that another claim holds is skipped.
--   Answers one object per head; an empty answer may mean that others were claiming: look once more before parking.
--   raises: 22023 for a lease that is not between 0.1 s and a day, or a limit that is not between 1 and 1000
--   locks:  the heads taken; of several targets, up to p_limit of each
create function heliograph.claim(
    p_project text, p_targets jsonb, p_worker text, p_limit integer, p_lease_seconds float8, p_now timestamptz
) returns jsonb language plpgsql set search_path = pg_catalog as $$
declare
    v_agent_ids text[];
    v_answer jsonb;
begin
    perform heliograph._check_lease(p_lease_seconds);
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    end if;
    -- two statements: the second has a snapshot that is newer than the locks
    -- each target by itself, so that the index gives the first ones in order however many are waiting
    select array_agg(agent_id) into v_agent_ids from (
        select ready.agent_id
          from (select distinct case jsonb_typeof(e) when 'object' then e ->> 'target' else e #>> '{}' end as name,
                                e -> 'agents' as agents, e ->> 'run_id' as run_id
                  from jsonb_array_elements(p_targets) e) t
         cross join lateral (
               select h.agent_id, h.priority, h.ready_at from heliograph.agent_state_head h
                where h.project_id = p_project and h.status = 'dispatched' and h.target = t.name
                  and (t.agents is null or t.agents ? h.agent_name) and (t.run_id is null or h.run_id = t.run_id)
                order by h.priority desc, h.ready_at, h.agent_id
                limit p_limit for update skip locked) ready
         order by ready.priority desc, ready.ready_at, ready.agent_id limit p_limit) picked;
    if v_agent_ids is null then
        return '[]';
    end if;
    with moved as (
        update heliograph.agent_state_head h
           set status = 'running', turn_epoch = h.turn_epoch + 1, owner = p_worker, phase = 'init',
               lease_until = p_now + make_interval(secs => p_lease_seconds),
               moved_at = greatest(p_now, h.moved_at)  -- it may have been dispatched after p_now was read
         where h.project_id = p_project and h.agent_id = any (v_agent_ids)
        returning h.*
    ), leased as (
        insert into heliograph.leases (project_id, agent_id, turn_epoch, agent_turn_id, owner, started_at)
        select project_id, agent_id, turn_epoch, active_agent_turn_id, p_worker, moved_at from moved
    ), taken as (
        update heliograph.agent_inbox i set status = 'processing', turn_epoch = m.turn_epoch
          from moved m
         where i.project_id = p_project and i.agent_id = m.agent_id and i.agent_turn_id = m.active_agent_turn_id
           and i.status in ('pending', 'deferred') and i.next_retry_at <= m.moved_at
           and i.agent_id = any (v_agent_ids)  -- or the plan may start with every message that waits in the project
        returning i.agent_id, i.inbox_id, i.message_type, i.correlation_id
    )
    select jsonb_agg(jsonb_build_object(
               'agent_id', m.agent_id, 'agent', m.agent_name, 'run_id', m.run_id, 'target', m.target,
               'turn_id', m.active_agent_turn_id, 'epoch', m.turn_epoch, 'priority', m.priority,
               'attempts', t.attempts, 'max_attempts', t.max_attempts,
               'ttl_seconds', extract(epoch from t.expires_at - p_now)::float8,
               'context_box_id', t.context_box_id, 'output_box_id', t.output_box_id,
               'activation_id', heliograph._signal_id(m.run_id, t.activation_seq),
               'cause', jsonb_build_object('id', heliograph._signal_id(m.run_id, t.cause_seq), 'name', s.name,
                                           'payload', s.payload, 'agent', s.agent),
               'inbox', coalesce((select jsonb_agg(jsonb_build_object('message_type', i.message_type,
                                      'correlation_id', i.correlation_id) order by i.inbox_id)
                                    from taken i where i.agent_id = m.agent_id), '[]'),
               'run', heliograph._run_view(p_project, m.run_id))
               order by m.priority desc, m.ready_at, m.agent_id)
      into v_answer
      from moved m
      join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = m.active_agent_turn_id
     cross join lateral (  -- looked up by its whole key, never by way of the run's other signals
           select c.name, c.payload, c.agent from heliograph.signals c
            where c.project_id = p_project and c.run_id = m.run_id and c.seq = t.cause_seq offset 0) s;
    return coalesce(v_answer, '[]');
end $$;

-- _check_lease: refuse a lease that would expire at once or never.
--   raises: 22023
--   locks:  nothing
create function heliograph._check_lease(p_lease_seconds float8) returns void
    language plpgsql immutable as $$
begin
    if not coalesce(p_lease_seconds between 0.1 and 86400, false) then
        raise exception using errcode = '22023',
            message = format('a lease must last between 0.1 and 86400 seconds, not %s', p_lease_seconds);
    end if;
end $$;

-- renew: keep leases (L0-111 the other way round). p_items: [{agent_id, turn_id, epoch, phase}].
--   Answers [{turn_id, outcome}]: 'ok', or 'stale' when the turn is no longer the caller's: stop working on it.
--   raises: 22023 for a lease out of range
--   locks:  the heads
create function heliograph.renew(p_project text, p_items jsonb, p_lease_seconds float8, p_now timestamptz)
    returns jsonb language plpgsql set search_path = pg_catalog as $$
declare
    v_answer jsonb;
begin
    perform heliograph._check_lease(p_lease_seconds);
    perform heliograph._lock_heads(p_project, (select array_agg(i ->> 'agent_id') from jsonb_array_elements(p_items) i));
    with item as (
        select i.item ->> 'agent_id' as agent_id, i.item ->> 'turn_id' as turn_id,
               (i.item ->> 'epoch')::bigint as epoch, i.item ->> 'phase' as phase, i.n
          from jsonb_array_elements(p_items) with ordinality i (item, n)
    ), renewed as (
        update heliograph.agent_state_head h
           set lease_until = p_now + make_interval(secs => p_lease_seconds), phase = coalesce(i.phase, h.phase)
          from item i
         where h.project_id = p_project and h.agent_id = i.agent_id and h.status = 'running'
           and h.active_agent_turn_id = i.turn_id and h.turn_epoch = i.epoch
        returning h.agent_id, h.turn_epoch, h.active_agent_turn_id as turn_id
    )
    select jsonb_agg(jsonb_build_object('turn_id', i.turn_id,
               'outcome', case when r.agent_id is null then 'stale' else 'ok' end) order by i.n)
      into v_answer
      from item i
      left join renewed r on r.agent_id = i.agent_id and r.turn_epoch = i.epoch and r.turn_id = i.turn_id;
    return coalesce(v_answer, '[]');
end $$;
