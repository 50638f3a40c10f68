-- Deferring: an owner that cannot continue now releases its turn until a later time (L0-64, G-71). No process waits.

-- defer: defer running turns: a worker claims them again after a delay (L0-64). The head becomes dispatched under the
--   next epoch and keeps its place in the claim order. A deferral counts as no attempt.
--   p_items: {agent_id, turn_id, epoch, reason, delay_seconds, deferrals_max, trust, terminates}, as one array for each
--   key. deferrals_max null: the project's limit. trust: 'untrusted', if the turn has read untrusted content that its
--   reason may quote. The inbox records the time, the reason and the count.
--   Returns rows {turn_id, outcome, targets, woken, due_at, stop} in the order of the items. 'deferred', with due_at.
--   'exhausted': the turn was deferred deferrals_max times before, and has ended as failed. 'stopped': a graceful stop
--   was pending and has ended the turn. 'stopping', with stop: see suspend, also for terminates. 'stale'. targets: the
--   workers to notify, for the whole call. woken: in the first row, the agents that the call woke.
--   raises: see _enter; 22023 for arrays of the wrong shape, a delay that is not between 0 and 366 days, a number of
--           deferrals out of range, an unknown trust
--   locks:  the heads, then the runs
create function heliograph.defer(
    p_project text, p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_reason text[], p_delay_seconds float8[],
    p_deferrals_max bigint[], p_trust text[], p_terminates boolean[], p_now timestamptz
) returns table (turn_id text, outcome text, targets text[], woken text[], due_at timestamptz, stop jsonb)
    language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_places integer[];
    v_turn heliograph.deferral;
    v_deferred heliograph.deferral[];
    v_outcome text; v_outcomes text[];
    v_stops jsonb[];
    v_woken text[] := '{}';
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_agent_id), heliograph._shape(p_turn_id), heliograph._shape(p_epoch),
        heliograph._shape(p_reason), heliograph._shape(p_delay_seconds), heliograph._shape(p_deferrals_max),
        heliograph._shape(p_trust), heliograph._shape(p_terminates)]);
    perform heliograph._check_deferrals(p_delay_seconds, p_deferrals_max, p_trust);
    perform heliograph._lock_heads(p_project, p_agent_id);
    perform heliograph._lock_runs(p_project, heliograph._runs_of(p_agent_id));
    for v_places in select places from heliograph._rounds(p_agent_id) order by places loop
        v_deferred := '{}';
        for v_turn in select d.* from heliograph._read_deferrals(p_project, v_places, p_agent_id, p_turn_id, p_epoch,
                                                                 p_now) d order by d.place loop
            v_outcome := case
                when v_turn.head_at is null then 'stale'
                when v_turn.stop_requested_at is not null
                then case when p_terminates[v_turn.place] then 'stopping' else 'stopped' end
                when v_turn.defer_count >= coalesce(p_deferrals_max[v_turn.place], v_limits.deferrals_max)
                then 'exhausted' else 'deferred' end;
            v_outcomes[v_turn.place] := v_outcome;
            if v_outcome = 'deferred' then
                v_deferred := v_deferred || v_turn;
            elsif v_outcome = 'stopped' then
                v_woken := v_woken || heliograph._end_if_stopping(p_project, v_turn.agent_id, p_now);
            elsif v_outcome = 'exhausted' then
                v_woken := v_woken || heliograph._end_exhausted(
                    p_project, v_turn, p_reason[v_turn.place], p_deferrals_max[v_turn.place], v_limits.deferrals_max,
                    p_trust[v_turn.place], p_now);
            elsif v_outcome = 'stopping' then
                v_stops[v_turn.place] := heliograph._stop_order(v_turn.stop_reason, v_turn.stop_requested_at) -> 'stop';
            end if;
        end loop;
        if cardinality(v_deferred) > 0 then
            perform heliograph._write_deferrals(p_project, v_deferred, p_reason, p_delay_seconds, p_terminates, p_now);
        end if;
    end loop;
    targets := heliograph._queues(p_project, v_woken);
    return query
    select p_turn_id[n], v_outcomes[n], targets,
           case when n = 1 and v_woken <> '{}' then array(select distinct a from unnest(v_woken) a order by a) end,
           case v_outcomes[n] when 'deferred' then p_now + make_interval(secs => p_delay_seconds[n]) end, v_stops[n]
      from generate_series(1, cardinality(p_turn_id)) n order by n;
end $$;

-- _check_deferrals: reject deferrals that defer cannot take.
--   raises: 22023 naming the field
create function heliograph._check_deferrals(p_delay_seconds float8[], p_deferrals_max bigint[], p_trust text[])
    returns void language plpgsql immutable as $$
declare
    v_wrong text;
begin
    for n in 1 .. cardinality(p_trust) loop
        v_wrong := case
            when (p_delay_seconds[n] between 0 and 31622400) is not true
            then 'delay_seconds must be between 0 and 366 days'
            when p_deferrals_max[n] not between 0 and 2147483647 then 'deferrals_max must be 0 or more, or null'
            when p_trust[n] not in ('trusted', 'untrusted') then 'trust must be trusted or untrusted' end;
        if v_wrong is not null then
            raise exception using errcode = '22023', message = v_wrong;
        end if;
    end loop;
end $$;

-- _read_deferrals: the turns of the items of a round, with the rows that a deferral changes. head_at: null for a turn
--   that the caller does not own.
--   The caller holds the heads.
create function heliograph._read_deferrals(
    p_project text, p_places integer[], p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_now timestamptz
) returns setof heliograph.deferral language plpgsql stable as $$
begin
    return query
    select n, p_agent_id[n], p_turn_id[n], h.at, h.released_at, h.stop_requested_at, h.stop_reason, t.at,
           t.defer_count, l.at
      from unnest(p_places) n
      left join lateral (
           select x.ctid as at, x.stop_requested_at, x.stop_reason,
                  greatest(heliograph._not_before_cards(p_project, p_turn_id[n], p_now), x.moved_at) as released_at
             from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = p_agent_id[n] and x.status = 'running'
              and x.active_agent_turn_id = p_turn_id[n] and x.turn_epoch = p_epoch[n] offset 0) h on true
      left join lateral (
           select x.ctid as at, x.defer_count from heliograph.agent_turns x
            where h.at is not null and x.project_id = p_project and x.agent_turn_id = p_turn_id[n] offset 0) t on true
      left join lateral (
           select x.ctid as at from heliograph.leases x
            where h.at is not null and x.project_id = p_project and x.agent_id = p_agent_id[n]
              and x.turn_epoch = p_epoch[n] offset 0) l on true;
end $$;

-- _end_exhausted: end a turn that has been deferred as often as it may be. p_own_max: deferrals_max of its item.
--   Returns the agents that it woke.
--   The caller holds the head and the run.
create function heliograph._end_exhausted(
    p_project text, p_turn heliograph.deferral, p_reason text, p_own_max bigint, p_project_max integer, p_trust text,
    p_now timestamptz
) returns text[] language plpgsql as $$
begin
    return heliograph._end_by_kernel(
        p_project, p_turn.turn_id, 'failed', 'RESOURCE_EXHAUSTED',
        format('the turn would be deferred %s times; at most %s are allowed: remove the cause, or raise %s. '
               'The last reason: %s', p_turn.defer_count + 1, coalesce(p_own_max, p_project_max),
               case when p_own_max is null then 'the limit with helio db limits deferrals_max=NUMBER'
                    else 'the retries of the agent' end, left(p_reason, 1000)),
        p_now, p_is_untrusted => coalesce(p_trust = 'untrusted', false));
end $$;

-- _write_deferrals: release the turns of a round until their delays are over. p_reason, p_delay_seconds, p_terminates:
--   of each item of the call.
--   The caller holds the heads.
create function heliograph._write_deferrals(
    p_project text, p_turns heliograph.deferral[], p_reason text[], p_delay_seconds float8[], p_terminates boolean[],
    p_now timestamptz
) returns void language plpgsql as $$
begin
    update heliograph.agent_turns t set defer_count = t.defer_count + 1
      from unnest(p_turns) d where t.ctid = d.turn_at;
    update heliograph.agent_inbox m
       set status = 'deferred', retry_count = m.retry_count + 1, defer_reason = left(p_reason[x.place], 1000),
           next_retry_at = p_now + make_interval(secs => p_delay_seconds[x.place])
      from (select y.at, d.place
              from unnest(p_turns) d
             cross join lateral (
                   select i.ctid as at from heliograph.agent_inbox i
                    where i.project_id = p_project and i.agent_turn_id = d.turn_id and i.status = 'processing'
                   offset 0) y) x
     where m.ctid = x.at;
    update heliograph.leases l set ended_at = d.released_at from unnest(p_turns) d where l.ctid = d.lease_at;
    update heliograph.agent_state_head h
       set status = 'dispatched', turn_epoch = h.turn_epoch + 1, owner = null, lease_until = null, phase = null,
           due_at = p_now + make_interval(secs => p_delay_seconds[d.place]), moved_at = d.released_at,
           terminates = coalesce(p_terminates[d.place], false)
      from unnest(p_turns) d where h.ctid = d.head_at;
end $$;
