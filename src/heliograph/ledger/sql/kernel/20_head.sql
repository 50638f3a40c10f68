-- Heads: locking and dispatching them. Every function locks heads by agent id, then runs by run id, then the buckets of
-- rate limits, then rows of the outbox (K17).

-- _lock_heads: lock heads in ascending agent id (K17).
--   Agents that do not exist are skipped.
--   locks:  those rows of agent_state_head
create function heliograph._lock_heads(p_project text, p_agent_ids text[]) returns void
    language plpgsql as $$
begin
    perform from heliograph.agent_state_head
      where project_id = p_project and agent_id = any (p_agent_ids)
      order by agent_id for update;
end $$;

-- _lock_runs: lock runs in ascending run id, after every head that the call needs.
--   locks:  those rows of runs
create function heliograph._lock_runs(p_project text, p_run_ids text[]) returns void
    language plpgsql as $$
begin
    perform from heliograph.runs
      where project_id = p_project and run_id = any (p_run_ids)
      order by run_id for update;
end $$;

-- _dispatch_next: give each idle head among p_agent_ids its oldest queued turn (K8, L0-34, L0-43).
--   idle -> dispatched, epoch + 1; the turn becomes active, its inbox row pending under the new epoch.
--   Returns the agents that it woke.
--   raises: 23505 if an agent would have two active turns
--   The caller holds the heads.
create function heliograph._dispatch_next(p_project text, p_agent_ids text[], p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_woken text[];
begin
    if not exists (
        select from unnest(p_agent_ids) u (a)
         cross join lateral (
               select from heliograph.agent_turns q
                where q.project_id = p_project and q.agent_id = u.a and q.state = 'queued' offset 0) t) then
        return '{}';  -- the usual case, without a statement that writes to three tables
    end if;
    with next as materialized (
        select h.at, t.at as turn_at, t.agent_turn_id, t.priority, t.pool, t.activation_seq, t.starts_at
          from (select distinct a from unnest(p_agent_ids) a) u
         cross join lateral (
               select x.ctid as at, x.agent_id from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = u.a and x.status = 'idle' offset 0) h
         cross join lateral (
               select q.ctid as at, q.agent_turn_id, q.priority, q.pool, q.activation_seq, q.starts_at
                 from heliograph.agent_turns q
                where q.project_id = p_project and q.agent_id = h.agent_id and q.state = 'queued'
                order by q.queue_seq limit 1) t
    ), moved as (
        update heliograph.agent_state_head h
           set status = 'dispatched', turn_epoch = h.turn_epoch + 1, active_agent_turn_id = n.agent_turn_id,
               priority = n.priority, pool = n.pool, ready_at = p_now,
               due_at = case when n.starts_at > p_now then n.starts_at end, activation_seq = n.activation_seq,
               moved_at = greatest(p_now, h.moved_at)  -- moved_at of a head never decreases
          from next n where h.ctid = n.at
        returning h.agent_id, h.turn_epoch, h.active_agent_turn_id
    ), activated as (
        update heliograph.agent_turns t set state = 'active' from next n where t.ctid = n.turn_at
    ), pending as (
        update heliograph.agent_inbox i
           set status = 'pending', turn_epoch = found.turn_epoch, next_retry_at = p_now
          from (select x.at, m.turn_epoch from moved m cross join lateral (
                       select c.ctid as at from heliograph.agent_inbox c
                        where c.project_id = p_project and c.agent_turn_id = m.active_agent_turn_id
                          and c.status = 'queued' offset 0) x) found
         where i.ctid = found.at
    )
    select array_agg(agent_id order by agent_id) into v_woken from moved;
    return coalesce(v_woken, '{}');
end $$;

-- _owns: the owner gate. True when the caller's turn and epoch are the head's, and it is running (L0-02, L0-41).
--   The caller holds the head.
create function heliograph._owns(p_project text, p_agent_id text, p_turn_id text, p_epoch bigint) returns boolean
    language sql stable as $$
    select exists (
        select from heliograph.agent_state_head
         where project_id = p_project and agent_id = p_agent_id
           and status = 'running' and active_agent_turn_id = p_turn_id and turn_epoch = p_epoch)
$$;

-- _queue_name: the queue from which the workers of a pool claim: the application, and any pool but the default one.
--   Bells carry this name.
create function heliograph._queue_name(p_target text, p_pool text) returns text
    language sql immutable as $$
    select case p_pool when 'default' then p_target else p_target || '/' || p_pool end
$$;

-- _queues: the queues of the agents that a call woke, whose workers are to be notified after the commit.
create function heliograph._queues(p_project text, p_woken text[]) returns text[]
    language plpgsql stable as $$
begin
    if coalesce(cardinality(p_woken), 0) = 0 then  -- most calls wake no agent and need no look-up
        return '{}';
    end if;
    return (select array_agg(distinct h.queue order by h.queue)
              from unnest(p_woken) w (agent_id)
             cross join lateral (
                   select heliograph._queue_name(x.target, x.pool) as queue from heliograph.agent_state_head x
                    where x.project_id = p_project and x.agent_id = w.agent_id offset 0) h);
end $$;

-- _bells: the part of an answer that names the agents that the call woke. targets: see _queues. woken: the agents;
--   absent if there are none. Every public function that wakes agents answers with this.
create function heliograph._bells(p_project text, p_woken text[]) returns jsonb
    language plpgsql stable as $$
begin
    if coalesce(cardinality(p_woken), 0) = 0 then
        return '{"targets": []}';
    end if;
    return jsonb_build_object('targets', heliograph._queues(p_project, p_woken),
                              'woken', heliograph._distinct(p_woken));
end $$;

-- _distinct: an array without repeats, in order, as JSON.
create function heliograph._distinct(p_values text[]) returns jsonb
    language sql immutable as $$
    select coalesce(jsonb_agg(distinct v order by v), '[]') from unnest(p_values) v
$$;

-- _rounds: divide a batch into rounds. Round n has the n-th item of each key, so the items of a round are independent
--   and can be written at once. All rounds in order have the same effect as the items one after another.
--   Returns, per round, the places of its items in the batch, from 1, ascending.
create function heliograph._rounds(p_keys text[]) returns table (places integer[])
    language plpgsql immutable as $$
begin
    if cardinality(p_keys) = 1 then  -- the usual case at low load, without a sort
        places := '{1}';
        return next;
        return;
    end if;
    return query
    select array_agg(n::integer order by n)
      from (select k.n, row_number() over (partition by k.key order by k.n) as round
              from unnest(p_keys) with ordinality k (key, n)) numbered
     group by round order by round;
end $$;
