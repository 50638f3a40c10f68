-- claim: claim up to p_limit dispatched turns for a worker (L0-40, L0-45, K6, K22). The head becomes running under the
--   next epoch, which is the fencing token of this owner.
--   p_targets: {target, pool, agents, run_id}, as one array for each key: the applications whose turns the worker runs.
--   pool: null for the default one. agents, run_id: of a worker that runs only these agents, or only this run.
--   Turns are claimed by priority, then first ready time, then agent id. A deferred turn waits until its time. A head
--   that another claim has locked is skipped.
--   Returns one object per turn with everything that its worker needs. budget: the remaining amount by kind; null for a
--   turn without budgets. has_emitted_signals: an earlier owner has logged signals, apart from suspensions;
--   age_seconds: the time since the first claim; earlier_epoch: that of the claim before, or null. stop: as in renew,
--   if a graceful stop is pending, else null; the owner runs the terminate phase and ends the turn.
--   The answer can be empty because other workers are claiming at this moment: call once more before waiting.
--   raises: see _enter; 22023 for targets that _check_targets rejects, a worker without a name, a lease that is not
--           between 0.1 s and a day, or a limit that is not between 1 and 1000; 54000 for turns that do not fit into
--           256 MB
--   locks:  the heads taken; of several targets, up to p_limit of each; before them the limits of a project with
--           running_max
create function heliograph.claim(
    p_project text, p_target text[], p_pool text[], p_agents jsonb[], p_run_id text[], p_worker text, p_limit integer,
    p_lease_seconds float8, p_now timestamptz
) returns json language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_agent_ids text[];
    v_limit integer := p_limit;
    v_running_max integer;
    v_waits json[];  -- these four, of turns with a history
    v_have_emitted boolean[];
    v_ages float8[];
    v_epochs bigint[];
    v_answer json;  -- text is built faster than jsonb
begin
    perform heliograph._check_targets(p_target, p_pool, p_agents, p_run_id);
    perform heliograph._check_lease(p_lease_seconds);
    if not coalesce(octet_length(p_worker) between 1 and 200, false) then
        raise exception using errcode = '22023', message = 'the name of a worker must have 1 to 200 bytes';
    elsif not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    end if;
    -- with a limit, claims run one after another: each counts the turns that earlier ones have claimed
    select running_max into v_running_max
      from heliograph.project_limits where project_id = p_project and running_max is not null
          order by project_id for update;
    if v_running_max is not null then
        v_limit := greatest(0, least(p_limit, v_running_max - (select count(*) from heliograph.agent_state_head
                                                                where project_id = p_project
                                                                  and lease_until is not null)));
    end if;
    v_agent_ids := heliograph._claimable(p_project, p_target, p_pool, p_agents, p_run_id, v_limit, p_now);
    if cardinality(p_target) > 1 then  -- two of them may name the same head
        select array_agg(a.agent_id order by a.n) into v_agent_ids
          from (select u.agent_id, min(u.n) as n from unnest(v_agent_ids) with ordinality u (agent_id, n)
                 group by u.agent_id) a;
    end if;
    if v_agent_ids is null then
        return '[]';
    elsif heliograph._take_heads(p_project, v_agent_ids, p_worker, p_lease_seconds, p_now) then
        select array_agg(w.waits order by u.n), array_agg(e.has_emitted_signals order by u.n),
               array_agg(e.age_seconds order by u.n), array_agg(e.epoch order by u.n)
          into v_waits, v_have_emitted, v_ages, v_epochs
          from unnest(v_agent_ids) with ordinality u (agent_id, n)
         cross join lateral (select * from heliograph.agent_state_head x
                              where x.project_id = p_project and x.agent_id = u.agent_id offset 0) h
         cross join lateral heliograph._waits(p_project, h.active_agent_turn_id) w
         cross join lateral heliograph._earlier_owners(p_project, h) e;
    end if;
    select json_agg(c) into v_answer
      from (select h.agent_id, h.agent_name as agent, h.run_id, h.target, h.active_agent_turn_id as turn_id,
                   h.turn_epoch as epoch, h.priority, h.phase, t.attempts, t.max_attempts, t.defer_count,
                   extract(epoch from t.expires_at - p_now)::float8 as ttl_seconds, t.context_box_id, t.output_box_id,
                   heliograph._signal_id(h.run_id, t.activation_seq) as activation_id, cause.signal as cause, i.inbox,
                   heliograph._run_view(r) as run, coalesce(v_waits[u.n], '[]') as waits, t.result_fields,
                   t.parent_turn_id, t.depth, t.message_type,
                   coalesce(v_have_emitted[u.n], false) as has_emitted_signals, coalesce(v_ages[u.n], 0) as age_seconds,
                   v_epochs[u.n] as earlier_epoch,
                   case when h.stop_requested_at is not null
                        then json_build_object('reason', h.stop_reason, 'requested_at', h.stop_requested_at)
                   end as stop,
                   case when t.budgets is not null then heliograph._remaining(p_project, t.budgets) end as budget
              from unnest(v_agent_ids) with ordinality u (agent_id, n)
             cross join lateral (select * from heliograph.agent_state_head x
                                  where x.project_id = p_project and x.agent_id = u.agent_id offset 0) h
             cross join lateral (select * from heliograph.agent_turns x
                                  where x.project_id = p_project and x.agent_turn_id = h.active_agent_turn_id
                                 offset 0) t
             cross join lateral (select * from heliograph.runs x
                                  where x.project_id = p_project and x.run_id = h.run_id offset 0) r
             cross join lateral heliograph._taken(p_project, t, h.turn_epoch) i
              left join lateral heliograph._signal_at(p_project, case when t.cause_seq <= r.forked_seq then
                    heliograph._owner_at(p_project, h.run_id, t.cause_seq) else h.run_id end, t.cause_seq) cause on true
             order by u.n) c;
    if octet_length(v_answer::text) > 268435455 then
        raise exception using errcode = '54000', message = 'the claimed turns have over 256 MB of JSON';
    end if;
    return coalesce(v_answer, '[]');
end $$;

-- _check_targets: reject columns of targets of the wrong shape, or agents that are no list.
--   raises: 22023 naming the key; see _check_columns
create function heliograph._check_targets(p_target text[], p_pool text[], p_agents jsonb[], p_run_id text[])
    returns void language plpgsql immutable as $$
declare
    v_agents jsonb;
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_target), heliograph._shape(p_pool), heliograph._shape(p_agents),
        heliograph._shape(p_run_id)]);
    if num_nonnulls(variadic p_agents) > 0 then
        perform heliograph._check_columns(p_agents);
        foreach v_agents in array p_agents loop
            if jsonb_typeof(v_agents) not in ('array', 'null') then
                raise exception using errcode = '22023', message = heliograph._other_type(
                    'p_targets[]', jsonb_build_object('agents', v_agents), 'agents', 'array');
            end if;
        end loop;
    end if;
end $$;

-- _claimable: the agents whose heads a claim takes, in its order; null for none. See claim.
--   locks:  the heads found; of several targets, up to p_limit of each
create function heliograph._claimable(
    p_project text, p_target text[], p_pool text[], p_agents jsonb[], p_run_id text[], p_limit integer,
    p_now timestamptz
) returns text[]
    language plpgsql as $$
begin
    -- each target by itself, so that the index returns the first heads in order however many wait; of deferred heads
    -- only the due ones are sorted
    return (select array_agg(agent_id) from (
        select ready.agent_id
          from (select distinct p_target[n] as name, coalesce(p_pool[n], 'default') as pool, p_agents[n] as agents,
                                p_run_id[n] as run_id
                  from generate_subscripts(p_target, 1) n) t
         cross join lateral (
               select * from (
                select h.agent_id, h.priority, h.ready_at from heliograph.agent_state_head h
                 where h.project_id = p_project and h.status = 'dispatched' and h.due_at is null and h.target = t.name
                   and h.pool = t.pool and (t.agents is null or t.agents ? h.agent_name)
                   and (t.run_id is null or h.run_id = t.run_id)
                 order by h.priority desc, h.ready_at, h.agent_id
                 limit p_limit for update skip locked) at_once
               union all
               select * from (
                select h.agent_id, h.priority, h.ready_at from heliograph.agent_state_head h
                 where h.project_id = p_project and h.status = 'dispatched' and h.due_at <= p_now and h.target = t.name
                   and h.pool = t.pool and (t.agents is null or t.agents ? h.agent_name)
                   and (t.run_id is null or h.run_id = t.run_id)
                 order by h.priority desc, h.ready_at, h.agent_id
                 limit p_limit for update skip locked) deferred) ready
         order by ready.priority desc, ready.ready_at, ready.agent_id limit p_limit) picked);
end $$;

-- _take_heads: make a worker the owner of heads: running under the next epoch, with a lease, and their due inbox rows
--   being processed. Returns whether a turn may have a history: after its first claim, which has the second epoch, or
--   in a fork, which has calls of the run that it was forked from.
--   The caller holds the heads.
create function heliograph._take_heads(
    p_project text, p_agent_ids text[], p_worker text, p_lease_seconds float8, p_now timestamptz
) returns boolean
    language plpgsql as $$
declare
    v_has_history boolean;
begin
    with moved as (
        update heliograph.agent_state_head h
           set status = 'running', turn_epoch = h.turn_epoch + 1, owner = p_worker, phase = coalesce(h.phase, 'init'),
               lease_until = p_now + make_interval(secs => p_lease_seconds), due_at = null,
               moved_at = greatest(p_now, h.moved_at)  -- it may have been dispatched after p_now was read
         where h.project_id = p_project and h.agent_id = any (p_agent_ids)
        returning h.*
    ), leased as (
        insert into heliograph.leases (project_id, agent_id, turn_epoch, agent_turn_id, owner, started_at, started_seq)
        select project_id, agent_id, turn_epoch, active_agent_turn_id, p_worker, moved_at, (select r.signal_seq
          from heliograph.runs r where r.project_id = p_project and r.run_id = moved.run_id) from moved  -- not locked
    ), taken as (
        update heliograph.agent_inbox i set status = 'processing', turn_epoch = found.turn_epoch
          from (select x.at, m.turn_epoch from moved m cross join lateral (
                       select c.ctid as at from heliograph.agent_inbox c
                        where c.project_id = p_project and c.agent_turn_id = m.active_agent_turn_id
                          and c.status in ('pending', 'deferred') and c.next_retry_at <= m.moved_at
                          -- an early report waits for its call, not for an owner
                          and c.payload is null offset 0) x) found
         where i.ctid = found.at
    )
    select bool_or(m.turn_epoch > 2 or r.forked_seq is not null) into v_has_history
      from moved m
     cross join lateral (
           select x.forked_seq from heliograph.runs x
            where x.project_id = p_project and x.run_id = m.run_id offset 0) r;
    return v_has_history;
end $$;

-- _taken: the inbox rows that a claim took under this epoch.
create function heliograph._taken(p_project text, p_turn heliograph.agent_turns, p_epoch bigint)
    returns table (inbox json) language sql stable as $$
    select coalesce(json_agg(json_build_object('message_type', i.message_type, 'correlation_id', coalesce(
                                 i.correlation_id, heliograph._signal_id(p_turn.run_id, p_turn.cause_seq)))
                             order by i.next_retry_at, i.created_at, i.inbox_id), '[]')
      from heliograph.agent_inbox i
     where i.project_id = p_project and i.agent_turn_id = p_turn.agent_turn_id and i.status = 'processing'
       and i.turn_epoch = p_epoch
$$;

-- _earlier_owners: the earlier owners of the active turn of a head that was just claimed, see claim.
--   Its leases are the agent's last ones, so no earlier lease is read.
create function heliograph._earlier_owners(p_project text, p_head heliograph.agent_state_head)
    returns table (has_emitted_signals boolean, epoch bigint, age_seconds float8) language sql stable as $$
    select bool_or(l.signals_emitted > 0), max(l.turn_epoch),
           extract(epoch from p_head.moved_at - min(l.started_at))::float8
      from heliograph.leases l
     where l.project_id = p_project and l.agent_id = p_head.agent_id and l.turn_epoch < p_head.turn_epoch
       and l.turn_epoch > greatest((  -- a coalesce would hide the index: see decision 0015
           select o.turn_epoch from heliograph.leases o
            where o.project_id = p_project and o.agent_id = p_head.agent_id
              and o.agent_turn_id <> p_head.active_agent_turn_id
            order by o.turn_epoch desc limit 1), -1)
$$;

-- _raise_large_results: raise the error of a turn whose results exceed one JSON value, from within a query.
--   raises: 54000
create function heliograph._raise_large_results() returns jsonb language plpgsql stable as $$
begin
    raise exception using errcode = '54000', message = 'the results of the calls of one turn have over 256 MB of JSON';
end $$;

-- _waits: the calls of a turn in the order in which they were opened, with their results so far; null for none. The
--   times of inline calls are null. The sizes of the results are added up before any of them is read: a call that
--   builds 256 MB in vain exceeds the time limit of its caller, who would call again and again.
--   raises: 54000 if the results have over 256 MB
create function heliograph._waits(p_project text, p_turn_id text) returns table (waits json)
    language sql stable as $$
    select json_agg(c)
      from (select w.tool_call_id as call_id, w.step_id, w.tool, w.kind, w.effect, w.state, w.status,
                   c.card_id, case when sum(b.bytes) over () > 268435455
                       then heliograph._raise_large_results() else coalesce(b.content, c.content) end as content,
                   w.resolved_position,
                   w.after_execution, w.may_override, w.epoch,
                   case when w.kind <> 'inline' then w.opened_at end as opened_at,
                   case when w.kind <> 'inline' then w.resolved_at end as resolved_at, w.taint
              from heliograph.turn_waiting_tools w
              left join lateral (
                   select x.card_id, x.content from heliograph.cards x
                    where x.project_id = p_project and x.card_id = heliograph._result_id(p_turn_id, w.tool_call_id)
                   offset 0) c on true
              left join lateral (
                   select x.content, x.bytes from heliograph.blobs x
                    where x.project_id = p_project and x.blob_id = c.content ->> '$blob' offset 0) b on true
             where w.project_id = p_project and w.agent_turn_id = p_turn_id order by w.position) c
$$;

-- _stop_order: {stop: {reason, requested_at}}: a pending graceful stop, for the owner of the turn.
create function heliograph._stop_order(p_reason text, p_requested_at timestamptz) returns jsonb
    language sql immutable as $$
    select jsonb_build_object('stop', jsonb_build_object('reason', p_reason, 'requested_at', p_requested_at))
$$;

-- _check_lease: reject a lease that would expire at once or never.
--   raises: 22023
create function heliograph._check_lease(p_lease_seconds float8) returns void
    language plpgsql immutable as $$
begin
    if not coalesce(p_lease_seconds between 0.1 and 86400, false) then
        raise exception using errcode = '22023',
            message = format('a lease must last between 0.1 and 86400 seconds, not %s', p_lease_seconds);
    end if;
end $$;

-- renew: renew the leases of running turns (L0-111).
--   p_items: {agent_id, turn_id, epoch, phase}, as one array for each key.
--   Returns rows {turn_id, outcome, stop} in the order of the items. 'ok'. 'stale': the caller no longer owns the turn
--   and stops working on it. stop, if a stop was requested: {reason, requested_at}; its owner ends the turn as
--   canceled, before sweep_stops does.
--   raises: see _enter; 22023 for arrays of the wrong shape, a lease out of range, or an unknown phase
--   locks:  the heads
create function heliograph.renew(
    p_project text, p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_phase text[], p_lease_seconds float8,
    p_now timestamptz
) returns table (turn_id text, outcome text, stop jsonb)
    language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_agent_id), heliograph._shape(p_turn_id), heliograph._shape(p_epoch),
        heliograph._shape(p_phase)]);
    perform heliograph._check_lease(p_lease_seconds);
    perform heliograph._check_phases(p_phase);
    perform heliograph._lock_heads(p_project, p_agent_id);
    return query
    with item as materialized (
        select * from unnest(p_agent_id, p_turn_id, p_epoch, p_phase)
               with ordinality i (agent_id, turn_id, epoch, phase, n)
    ), renewed as (
        update heliograph.agent_state_head h
           set lease_until = p_now + make_interval(secs => p_lease_seconds), phase = coalesce(i.phase, h.phase)
          from item i
         where h.project_id = p_project and h.agent_id = i.agent_id and h.status = 'running'
           and h.active_agent_turn_id = i.turn_id and h.turn_epoch = i.epoch
        returning h.agent_id, h.turn_epoch, h.active_agent_turn_id, h.stop_requested_at, h.stop_reason
    )
    select i.turn_id, case when r.agent_id is null then 'stale' else 'ok' end,
           case when r.stop_requested_at is not null
                then jsonb_build_object('reason', r.stop_reason, 'requested_at', r.stop_requested_at) end
      from item i
      left join renewed r on r.agent_id = i.agent_id and r.turn_epoch = i.epoch and r.active_agent_turn_id = i.turn_id
     order by i.n;
end $$;
