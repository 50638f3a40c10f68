-- Pending reactions: runs with signals that no reaction covers yet. One answer has at most 128 MiB, the size of the
-- largest JSON in a request: an answer that no client can read would stop the reactions of the whole project.

-- sweep_pending_reactions: list runs of p_targets with pending reactions (K25), each with its signals without a
--   reaction. Runs with fewer rejected reactions come first. One answer has at most p_limit runs and at most 128 MiB;
--   the next call returns further runs.
--   Returns [{target, run, rejections, signals: [{seq, name, payload, agent, turn_id, ended}]}]. A run that exceeds one
--   answer comes without signals, state and memory, and with failure: {code, message}; its worker ends it as failed.
--   ended: see _ended_turn; of a turn that the kernel has ended.
--   raises: see _enter; 22023 for a negative limit
--   Takes no locks: react compares the version.
create function heliograph.sweep_pending_reactions(p_project text, p_targets jsonb, p_limit integer) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    perform heliograph._check_json(p_targets);
    perform heliograph._check_strings('p_targets[]', p_targets);
    perform heliograph._check_sweep(p_limit);
    return heliograph._runs_with_pending(p_project, p_targets, p_limit, 134217728);
end $$;

-- _runs_with_pending: the answer of sweep_pending_reactions, of at most p_bytes_max bytes, as text and as jsonb.
create function heliograph._runs_with_pending(
    p_project text, p_targets jsonb, p_limit integer, p_bytes_max integer
) returns jsonb
    language plpgsql stable as $$
declare
    v_run heliograph.runs;
    v_item record;
    v_bytes_left bigint := p_bytes_max;
    v_items jsonb[] := '{}';
begin
    for v_run in
        select (r.run).*
          from (select distinct e #>> '{}' as name from jsonb_array_elements(p_targets) e) t
         cross join lateral (
               select x as run, x.rejections, x.run_id from heliograph.runs x
                where x.project_id = p_project and x.target = t.name and x.pending_reactions > 0
                order by x.rejections, x.run_id limit p_limit) r
         order by r.rejections, r.run_id limit p_limit
    loop
        select * into v_item from heliograph._readable_run(p_project, v_run, p_bytes_max);
        exit when v_item.bytes > v_bytes_left and cardinality(v_items) > 0 and not v_item.item ? 'failure';
        v_items := v_items || v_item.item;
        v_bytes_left := v_bytes_left - v_item.bytes;
        exit when v_bytes_left <= 0;  -- also after a run that is too large: measuring it takes as long as reading it
    end loop;
    return to_jsonb(v_items);
end $$;

-- _readable_run: one item of the answer of sweep_pending_reactions, and the size of its contents in bytes: as text,
--   which is sent, or as jsonb, whichever is larger. A run that cannot be read, or not within p_bytes_max, has
--   a failure instead of its contents.
--   raises: errors of the server itself (classes 40, 53, 55, 57, 58)
create function heliograph._readable_run(
    p_project text, p_run heliograph.runs, p_bytes_max integer, out item jsonb, out bytes bigint
) language plpgsql stable as $$
declare
    v_failure jsonb;
begin
    begin  -- a savepoint: contents that exceed one JSON value cannot be measured or built
        bytes := heliograph._bytes_of_pending(p_project, p_run);  -- before it is built, which takes much longer
        if bytes <= p_bytes_max then
            item := heliograph._run_with_pending(p_project, p_run);
            bytes := greatest(bytes, pg_column_size(item));
        end if;
        if bytes <= p_bytes_max then
            return;
        end if;
        v_failure := jsonb_build_object('code', 'RESOURCE_EXHAUSTED', 'message', format(
            'its state and its pending signals have %s bytes; workers read at most %s', bytes, p_bytes_max));
    exception when others then
        if sqlstate ~ '^(40|53|55|57|58)' then
            raise;
        end if;
        bytes := p_bytes_max;
        v_failure := jsonb_build_object(
            'code', case when sqlstate like '54%' then 'RESOURCE_EXHAUSTED' else 'INTERNAL_ERROR' end,
            'message', format('no worker can read its state and its pending signals: %s %s', sqlstate, left(sqlerrm,
                    1000)));
    end;
    p_run.state := '{}';
    p_run.memory := '{}';
    item := jsonb_build_object('target', p_run.target, 'run', heliograph._run_view(p_run),
                               'rejections', p_run.rejections, 'signals', '[]'::jsonb, 'failure', v_failure);
end $$;

-- _ended_turn: the part of an ended turn that its trace needs: {parent_turn_id, parent_call_id, cause_turn_id,
--   claimed_at, calls}. cause_turn_id: the turn that emitted its cause. claimed_at: its first claim; null without one.
--   calls: those that were not inline, without their results, and the inline calls that were open at its end.
create function heliograph._ended_turn(p_project text, p_turn_id text) returns jsonb language sql stable as $$
    select jsonb_build_object(
               'parent_turn_id', t.parent_turn_id, 'parent_call_id', t.parent_call_id,
               'cause_turn_id', (
                   select c.signal -> 'turn_id'
                     from heliograph._signal_at(p_project, heliograph._owner_at(p_project, t.run_id, t.cause_seq),
                                                t.cause_seq) c),
               'claimed_at', (
                   select min(l.started_at) from heliograph.leases l
                    where l.project_id = p_project and l.agent_id = t.agent_id and l.agent_turn_id = p_turn_id),
               'calls', coalesce((
                   select jsonb_agg(jsonb_build_object('call_id', w.tool_call_id, 'tool', w.tool, 'kind', w.kind,
                              'state', w.state, 'status', w.status, 'epoch', w.epoch, 'opened_at', w.opened_at,
                              'resolved_at', w.resolved_at) order by w.position)
                     from heliograph.turn_waiting_tools w
                    where w.project_id = p_project and w.agent_turn_id = p_turn_id
                      and (w.kind <> 'inline' or w.state = 'closed')),
                   '[]'))
      from heliograph.agent_turns t
     where t.project_id = p_project and t.agent_turn_id = p_turn_id
$$;

-- _bytes_of_pending: the size as text of a run's state, memory, log entries with signals to which it has not reacted,
--   and turns whose ends these are.
--   raises: 54000 for a value whose text exceeds 1 GB
create function heliograph._bytes_of_pending(p_project text, p_run heliograph.runs) returns bigint
    language sql stable as $$
    select octet_length(p_run.state::text) + octet_length(p_run.memory::text)
           + coalesce(sum(octet_length(s.entries::text) + case
                          when s.agent_turn_id is not null and s.entries @> '[{"name": "agent:failed"}]'
                          then octet_length(heliograph._ended_turn(p_project, s.agent_turn_id)::text)
                          else 0 end), 0)::bigint
      from heliograph.signals s
     where s.project_id = p_project and s.run_id = p_run.run_id and s.is_pending
$$;

-- _run_with_pending: a run with the signals to which it has not reacted.
--   raises: 54000 if they exceed one JSON value
create function heliograph._run_with_pending(p_project text, p_run heliograph.runs) returns jsonb
    language sql stable as $$
    select jsonb_build_object(
               'target', p_run.target, 'run', heliograph._run_view(p_run), 'rejections', p_run.rejections, 'signals', (
                   select jsonb_agg(jsonb_build_object('seq', s.seq + e.n - 1, 'name', e.entry -> 'name',
                              'payload', coalesce(e.entry -> 'payload', '{}'), 'agent', e.entry -> 'agent',
                              'turn_id', s.agent_turn_id)
                              || case when e.entry ->> 'name' = 'agent:failed' and s.agent_turn_id is not null
                                      then jsonb_build_object(
                                               'ended', heliograph._ended_turn(p_project, s.agent_turn_id))
                                      else '{}' end order by s.seq, e.n)
                     from heliograph.signals s
                    cross join lateral jsonb_array_elements(s.entries) with ordinality e (entry, n)
                    where s.project_id = p_project and s.run_id = p_run.run_id and s.is_pending
                      and heliograph._as_boolean(e.entry -> 'is_pending')))
$$;
