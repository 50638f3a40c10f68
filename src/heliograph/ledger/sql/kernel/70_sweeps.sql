-- Sweeps: every way to be stuck has one that finds it. They run in any worker, many at once: a candidate that
-- another transaction holds is skipped. Batches are taken in the lock order: heads, then runs, both ascending.

-- sweep_leases: running turns whose lease ran out (K7, L0-111, G-62).
--   Below max_attempts: running -> dispatched, epoch + 1, attempts + 1, its inbox rows pending again; it keeps its
--   place in the claim order (K22). At max_attempts: ended as failed.
--   Answers {recovered: [turn_id], ended: [turn_id], targets}.
--   raises: nothing
--   locks:  the heads found, then their runs
create function heliograph.sweep_leases(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_agent_id text;
    v_head record;
    v_now timestamptz;
    v_recovered text[] := '{}';
    v_ended text[] := '{}';
    v_targets text[] := '{}';
begin
    for v_agent_id in
        with due as (
            select run_id, agent_id from heliograph.agent_state_head
             where project_id = p_project and status = 'running' and lease_until <= p_now
             order by lease_until, agent_id limit p_limit for update skip locked)
        select agent_id from due order by run_id, agent_id
    loop
        -- read again, now that the head is held: the loop's own snapshot is older than its locks
        select h.agent_id, h.turn_epoch, h.target, h.moved_at, t.agent_turn_id, t.attempts, t.max_attempts into v_head
          from heliograph.agent_state_head h
          join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = h.active_agent_turn_id
         where h.project_id = p_project and h.agent_id = v_agent_id;
        if v_head.attempts + 1 >= v_head.max_attempts then
            v_targets := v_targets || heliograph._end_by_kernel(p_project, v_head.agent_turn_id, 'failed',
                'RESOURCE_EXHAUSTED', format('lost its worker %s times', v_head.attempts + 1), p_now);
            v_ended := v_ended || v_head.agent_turn_id;
            continue;
        end if;
        update heliograph.agent_turns set attempts = attempts + 1
         where project_id = p_project and agent_turn_id = v_head.agent_turn_id;
        v_now := greatest(heliograph._after_cards(p_project, v_head.agent_turn_id, p_now), v_head.moved_at);
        update heliograph.leases set ended_at = v_now
         where project_id = p_project and agent_id = v_head.agent_id and turn_epoch = v_head.turn_epoch;
        update heliograph.agent_state_head
           set status = 'dispatched', turn_epoch = turn_epoch + 1, owner = null, lease_until = null,
               moved_at = v_now
         where project_id = p_project and agent_id = v_head.agent_id;
        update heliograph.agent_inbox set status = 'pending', turn_epoch = v_head.turn_epoch + 1
         where project_id = p_project and agent_id = v_head.agent_id and agent_turn_id = v_head.agent_turn_id
           and status = 'processing';
        v_recovered := v_recovered || v_head.agent_turn_id;
        v_targets := v_targets || v_head.target;
    end loop;
    return jsonb_build_object('recovered', to_jsonb(v_recovered), 'ended', to_jsonb(v_ended),
                              'targets', heliograph._distinct(v_targets));
end $$;

-- _distinct: an array without repeats, in order, as JSON.
--   raises: nothing
--   locks:  nothing
create function heliograph._distinct(p_values text[]) returns jsonb
    language sql immutable as $$
    select coalesce(jsonb_agg(distinct v order by v), '[]') from unnest(p_values) v
$$;

-- sweep_expired: turns past their expires_at, queued ones too (K19): ended as timeout.
--   Answers {ended: [turn_id], targets}.
--   raises: nothing
--   locks:  the heads found, then their runs
create function heliograph.sweep_expired(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_turn_id text;
    v_ended text[] := '{}';
    v_targets text[] := '{}';
begin
    for v_turn_id in
        with due as (
            select t.agent_turn_id, t.run_id, t.agent_id, t.queue_seq from heliograph.agent_turns t
              join heliograph.agent_state_head h using (project_id, agent_id)
             where t.project_id = p_project and t.state <> 'done' and t.expires_at <= p_now
             order by t.expires_at, t.agent_turn_id limit p_limit for update of h skip locked)
        select agent_turn_id from due order by run_id, agent_id, queue_seq
    loop
        -- read again, now that the head is held: the turn may have ended before
        continue when not exists (select from heliograph.agent_turns
                                   where project_id = p_project and agent_turn_id = v_turn_id and state <> 'done');
        v_targets := v_targets || heliograph._end_by_kernel(p_project, v_turn_id, 'timeout', 'TIMEOUT',
            'not finished before its time to live ran out', p_now);
        v_ended := v_ended || v_turn_id;
    end loop;
    return jsonb_build_object('ended', to_jsonb(v_ended), 'targets', heliograph._distinct(v_targets));
end $$;

-- sweep_queued: queued turns on idle agents (K10b). The chain of K8 leaves none; this is the belt to its braces.
--   Answers {targets}.
--   raises: nothing
--   locks:  the heads found
create function heliograph.sweep_queued(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_agent_ids text[];
begin
    select array_agg(agent_id order by agent_id) into v_agent_ids from (
        select h.agent_id from heliograph.agent_state_head h
         where h.project_id = p_project and h.status = 'idle'
           and h.agent_id in (select t.agent_id from heliograph.agent_turns t
                               where t.project_id = p_project and t.state = 'queued')
         order by h.agent_id limit p_limit for update skip locked) found_idle;
    return jsonb_build_object('targets', to_jsonb(heliograph._dispatch_next(p_project, v_agent_ids, p_now)));
end $$;

-- sweep_bells: targets with a head that has waited longer than p_older_seconds for a claim (K10): ring them.
--   Changes nothing, so that it disturbs no other measure (K20).
--   raises: nothing
--   locks:  nothing
create function heliograph.sweep_bells(p_project text, p_older_seconds float8, p_now timestamptz) returns jsonb
    language sql stable set search_path = pg_catalog as $$
    select coalesce(jsonb_agg(distinct target order by target), '[]') from heliograph.agent_state_head
     where project_id = p_project and status = 'dispatched' and moved_at <= p_now - make_interval(secs => p_older_seconds)
$$;

-- sweep_owed: runs of p_targets that owe a reaction (K25), each with the signals it has not reacted to.
--   Answers [{run, signals: [{seq, name, payload, agent, turn_id}]}].
--   raises: nothing
--   locks:  nothing: react compares the version
create function heliograph.sweep_owed(p_project text, p_targets jsonb, p_limit integer) returns jsonb
    language sql stable set search_path = pg_catalog as $$
    select coalesce(jsonb_agg(jsonb_build_object(
               'target', r.target, 'run', heliograph._run_view(p_project, r.run_id),
               'signals', (select jsonb_agg(jsonb_build_object('seq', s.seq, 'name', s.name, 'payload', s.payload,
                                      'agent', s.agent, 'turn_id', s.agent_turn_id) order by s.seq)
                             from heliograph.signals s
                            where s.project_id = p_project and s.run_id = r.run_id and s.owed))
               order by r.run_id), '[]')
      from (select run_id, target from heliograph.runs
             where project_id = p_project and owed > 0
               and target = any (array(select jsonb_array_elements_text(p_targets)))
             order by run_id limit p_limit) r
$$;
