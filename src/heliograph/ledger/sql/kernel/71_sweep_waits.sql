-- Sweeps of suspended turns: passed deadlines, ended children, and turns without an open call. 70_sweep_batches.sql
-- explains the common part of all sweeps.

-- sweep_waits: resolve calls whose deadline has passed (K11, L0-21, L0-75 to L0-77): a timer as success, every other
--   call as timeout. A deadline and a report of the same call compete under the same lock, and the first one counts
--   (G-73).
--   p_limit: the maximum number of calls; null for all. All overdue calls of a turn are resolved together.
--   Returns {resolved: [turn_id], resumed: [turn_id], failed: [{turn_id, code, message, ended}], targets}, see
--   sweep_leases.
--   raises: see _enter; 22023 for a negative limit
--   locks:  the heads found, then their runs, then the commands deleted
create function heliograph.sweep_waits(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_due text[];
begin
    perform heliograph._check_sweep(p_limit);
    -- in the order of the index, so that at most p_limit are read, however many are due
    v_due := array(
        select w.agent_turn_id from heliograph.turn_waiting_tools w
         cross join lateral (
               select x.agent_id from heliograph.agent_turns x
                where x.project_id = p_project and x.agent_turn_id = w.agent_turn_id offset 0) t
          join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = t.agent_id
         where w.project_id = p_project and w.state = 'open' and w.kind <> 'inline' and w.deadline <= p_now
           and h.sweep_failures = 0
         order by w.deadline, w.agent_turn_id, w.tool_call_id limit p_limit for update of h skip locked);
    if p_limit is null or cardinality(v_due) < p_limit then  -- few are due: retry those that failed before
        v_due := v_due || array(
            select h.active_agent_turn_id from heliograph.agent_state_head h
             where h.project_id = p_project and h.agent_id = any (array(
                   select r.agent_id from heliograph.turn_waiting_tools w
                    cross join lateral (  -- each head by its key, because few have failed
                          select x.agent_id, x.sweep_failures from heliograph.agent_turns t
                            join heliograph.agent_state_head x on x.project_id = p_project and x.agent_id = t.agent_id
                           where t.project_id = p_project and t.agent_turn_id = w.agent_turn_id offset 0) r
                    where w.project_id = p_project and w.state = 'open' and w.kind <> 'inline' and w.deadline <= p_now
                      and r.sweep_failures > 0
                    order by r.sweep_failures, w.deadline, w.agent_turn_id, w.tool_call_id
                        limit p_limit - cardinality(v_due)))
             order by h.agent_id for update skip locked);
    end if;
    return heliograph._sweep_each(p_project, 'wait', v_due, '{resolved,resumed}', p_now);
end $$;

-- _sweep_wait: see sweep_waits.
--   raises: any error that the turn's rows cause
--   locks:  the run, then the commands deleted; the caller holds the head
create function heliograph._sweep_wait(p_project text, p_agent_id text, p_turn_id text, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_results jsonb;
begin
    perform heliograph._lock_runs(p_project, array[heliograph._run_of(p_agent_id)]);
    select jsonb_agg(jsonb_build_object('turn_id', w.agent_turn_id, 'call_id', w.tool_call_id, 'message_type',
                                        'timeout')
                     || case when w.kind = 'timer' then '{"status": "success"}'
                             else jsonb_build_object('status', 'timeout', 'error', jsonb_build_object(
                                 'code', case w.kind when 'child' then 'DELEGATION_TIMEOUT' else 'TOOL_TIMEOUT' end,
                                 'recoverable', true,
                                 'message', case when w.kind = 'human' then format('nobody answered "%s" within %s s',
                                         coalesce(heliograph._question(p_project, p_turn_id, w.tool_call_id), w.tool),
                                         round(extract(epoch from w.deadline - w.opened_at), 3))
                                     else format('%s did not answer within %s s', w.tool,
                                         round(extract(epoch from w.deadline - w.opened_at), 3)) end)) end
                     order by w.deadline, w.position) into v_results
      from heliograph.turn_waiting_tools w
     where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.state = 'open' and w.kind <> 'inline'
       and w.deadline <= p_now;
    return heliograph._resolve_swept(p_project, p_turn_id, v_results, p_now);
end $$;

-- _resolve_swept: resolve the calls of one turn that a sweep found, and answer as _try_sweep does.
--   raises: see _resolve
--   locks:  see _resolve; the caller holds the head and the run
create function heliograph._resolve_swept(
    p_project text, p_turn_id text, p_results jsonb, p_now timestamptz
) returns jsonb
    language plpgsql as $$
declare
    v_done jsonb;
begin
    if p_results is null then
        return '{}';
    end if;
    v_done := heliograph._resolve(p_project, heliograph._call_results(p_results), octet_length(p_results::text),
                                  heliograph._limits(p_project), p_now);
    return jsonb_build_object('resolved', p_turn_id, 'woken', v_done -> 'woken')
           || case when v_done -> 'resumed' ? p_turn_id then jsonb_build_object('resumed', p_turn_id) else '{}' end;
end $$;

-- sweep_reports: resolve the calls of turns that wait for delegated turns which have ended (L0-38). The outcome of the
--   delegated turn is the status of the call; partial counts as success. Its deliverable is the output or the error,
--   with a pointer to the card.
--   p_limit: the maximum number of outbox rows; null for all.
--   Returns {resolved: [turn_id], resumed: [turn_id], failed: [{turn_id, code, message, ended}], targets} of the
--   waiting turns, see sweep_leases.
--   raises: see _enter; 22023 for a negative limit
--   locks:  the heads of the parents, then their runs, then the rows of the outbox
create function heliograph.sweep_reports(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_keys text[];
    v_parents text[];
    v_held text[];
    v_answer jsonb;
begin
    perform heliograph._check_sweep(p_limit);
    -- rows are read here and locked only with the heads and runs of the parents, see sweep_stops
    select array_agg(o.key order by o.due_at, o.outbox_id), array_agg(o.agent_turn_id order by o.due_at, o.outbox_id)
      into v_keys, v_parents
      from (select x.key, x.agent_turn_id, x.due_at, x.outbox_id from heliograph.outbox x
             where x.project_id = p_project and x.kind = 'report' and x.published_at is null and x.due_at <= p_now
             order by x.due_at, x.outbox_id limit p_limit) o;
    v_held := array(
        select t.agent_turn_id from heliograph.agent_turns t
          join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = t.agent_id
         where t.project_id = p_project and t.agent_turn_id = any (v_parents)
         order by h.agent_id for update of h skip locked);
    v_answer := heliograph._sweep_each(p_project, 'report', v_held, '{resolved,resumed}', p_now);
    -- last, so that no lock is awaited while these are held. A row for which no turn waits is done
    with row as materialized (
        select x.key, exists (select from jsonb_array_elements(v_answer -> 'failed') f
                              where f ->> 'turn_id' = x.agent_turn_id) as has_failed
          from heliograph.outbox x
         where x.project_id = p_project and x.key = any (v_keys) and heliograph._is_unpublished(x.published_at)
           and (x.agent_turn_id = any (v_held) or not exists (
                select from heliograph.agent_turns t where t.project_id = p_project
                    and t.agent_turn_id = x.agent_turn_id))
         order by x.key for update skip locked)
    update heliograph.outbox o
       set deliveries = o.deliveries + 1, published_at = case when not r.has_failed then p_now end,
           due_at = case when r.has_failed then heliograph._redelivery_at(o.deliveries, p_now) else o.due_at end
      from row r where o.project_id = p_project and o.key = r.key;
    return v_answer;
end $$;

-- _sweep_report: see sweep_reports. A wait that is resolved or closed already is skipped.
--   raises: any error that the turn's rows cause
--   locks:  the run, then the rows of the outbox; the caller holds the head
create function heliograph._sweep_report(
    p_project text, p_agent_id text, p_turn_id text, p_now timestamptz
) returns jsonb
    language plpgsql as $$
declare
    v_results jsonb;
begin
    perform heliograph._lock_runs(p_project, array[heliograph._run_of(p_agent_id)]);
    with due as (
        update heliograph.outbox o set published_at = p_now, deliveries = o.deliveries + 1
          from (select x.key from heliograph.outbox x
                 where x.project_id = p_project and heliograph._is_unpublished(x.published_at) and x.due_at <= p_now
                   and x.key = any (array(select 'report:' || w.child_turn_id from heliograph.turn_waiting_tools w
                                           where w.project_id = p_project and w.agent_turn_id = p_turn_id
                                             and w.kind = 'child'))
                 order by x.key for update) held
         where o.project_id = p_project and o.key = held.key
        returning o.outbox_id, o.call_id, o.body ->> 'child_turn_id' as child_turn_id
    )
    select jsonb_agg(jsonb_build_object('turn_id', p_turn_id, 'call_id', d.call_id, 'message_type', 'tool_result',
                                        'more',
                         jsonb_build_object('child_turn_id', t.agent_turn_id, 'outcome', t.outcome,
                                            'deliverable_card_id', c.card_id))
                     || case when c.content ->> 'trust' = 'untrusted' then jsonb '{"trust": "untrusted"}' else '{}' end
                     || case when t.outcome in ('success', 'partial')
                             then jsonb_build_object('status', 'success', 'output', c.content)
                             else jsonb_build_object('status', t.outcome, 'error', coalesce(c.content -> 'error',
                                      jsonb_build_object('code', 'DELEGATION_ERROR', 'message', c.content -> 'text'))
                                  || jsonb_build_object('child_turn_id', t.agent_turn_id)) end
                     order by d.outbox_id) into v_results
      from due d
     cross join lateral (
           select x.* from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = d.child_turn_id offset 0) t
     cross join lateral (
           select x.card_id, heliograph._content(p_project, x.content) as content from heliograph.cards x
            where x.project_id = p_project and x.card_id = heliograph._deliverable_id(t.agent_turn_id) offset 0) c
     where exists (select from heliograph.turn_waiting_tools w
                    where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.tool_call_id = d.call_id
                      and w.state = 'open');
    return heliograph._resolve_swept(p_project, p_turn_id, v_results, p_now);
end $$;

-- sweep_stuck: resume suspended turns without an open call (H2). No function leaves such a turn behind, so this sweep
--   finds work only after a defect.
--   It reads the heads in order, at most ten times p_limit per call (null: all), and continues after the agent id
--   p_after, which is `after` of the last answer.
--   Returns {resumed: [turn_id], failed: [{turn_id, code, message, ended}], targets, after}; after: null at the end of
--   the heads.
--   raises: see _enter; 22023 for a negative limit
--   locks:  the heads found, and the runs of turns that end as failed
create function heliograph.sweep_stuck(p_project text, p_limit integer, p_after text, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_agents text[];
begin
    perform heliograph._check_sweep(p_limit);
    v_agents := array(
        select t.agent_id from heliograph.agent_turns t
         where t.project_id = p_project and t.state = 'active' and t.agent_id > case when p_after is null then ''
             else p_after end
         order by t.agent_id limit 10 * p_limit::bigint);
    return heliograph._sweep_each(p_project, 'stuck', array(
        select h.active_agent_turn_id from heliograph.agent_state_head h
         where h.project_id = p_project and h.agent_id = any (v_agents) and h.status = 'suspended' and not exists (
               select from heliograph.turn_waiting_tools w
                where w.project_id = p_project and w.agent_turn_id = h.active_agent_turn_id and w.state = 'open'
                  and w.kind <> 'inline')
         order by h.sweep_failures, h.agent_id limit p_limit for update of h skip locked), '{resumed}', p_now)
        || jsonb_build_object('after', case when cardinality(v_agents) = 10 * p_limit::bigint
                              then v_agents[cardinality(v_agents)] end);
end $$;

-- _sweep_stuck: see sweep_stuck. The sweep writes an inbox row, because the turn has no open one.
--   raises: any error that the turn's rows cause
--   The caller holds the head.
create function heliograph._sweep_stuck(
    p_project text, p_agent_id text, p_turn_id text, p_now timestamptz
) returns jsonb
    language plpgsql as $$
declare
    v_woken text;
begin
    update heliograph.agent_state_head h
       set status = 'dispatched', waiting_tool_count = 0, resume_deadline = null, resumes_on = null,
           moved_at = greatest(p_now, h.moved_at)
     where h.project_id = p_project and h.agent_id = p_agent_id and h.status = 'suspended'
       and h.active_agent_turn_id = p_turn_id
       and not exists (select from heliograph.turn_waiting_tools w
                        where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.state = 'open'
                          and w.kind <> 'inline')
    returning h.agent_id into v_woken;
    if v_woken is null then
        return '{}';
    end if;
    update heliograph.agent_turns
       set human_wait_since = null,
           human_wait_time = nullif(coalesce(human_wait_time, '0') + heliograph._span(human_wait_since, p_now), '0'),
           expires_at = expires_at + heliograph._span(human_wait_since, p_now)
     where project_id = p_project and agent_turn_id = p_turn_id and human_wait_since is not null;
    insert into heliograph.agent_inbox
        (project_id, agent_turn_id, message_type, status, correlation_id, next_retry_at, created_at)
    values (p_project, p_turn_id, 'timeout', 'pending', p_turn_id, p_now, p_now);
    return jsonb_build_object('resumed', p_turn_id, 'woken', jsonb_build_array(v_woken));
end $$;
