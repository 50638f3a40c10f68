-- Runs: the input of a reaction, and its commit.

-- _run_view: the input from which a reaction is computed; its version guards the commit (K24).
create function heliograph._run_view(p_run heliograph.runs) returns json
    language sql stable as $$
    select json_build_object('run_id', p_run.run_id, 'status', p_run.status, 'version', p_run.version,
                             'state', p_run.state, 'memory', p_run.memory, 'open_turns', p_run.open_turns,
                             'pending_reactions', p_run.pending_reactions, 'activations', p_run.activations)
$$;

-- _commit_reactions: reactions {version, state, memory, status, outcome, activations, stops, is_message} with their
--   signals, of runs that do not repeat. p_items: [{run_id or agent_id, turn_id, signals, reaction, settles_from}];
--   p_closed: the number of turns that each ended in this transaction. state and memory may be absent: unchanged.
--   stops: see _stop_open_turns.
--   is_message: a message from outside, which restarts the count of max_activations. keeps_taint: the untrusted keys of
--   the run's memory remain, even if the new memory differs. memory.join_base: if it is null, it becomes the position
--   before the signals. settles_from: the position of the first signal that was pending until this reaction.
--   Returns the agents that it woke.
--   The caller has compared the versions.
--   raises: 23514 for a run that has ended, or would end with a turn open or a reaction pending (K26); see _enqueue
--   locks:  see _enqueue; the caller holds the heads of the activated agents and the runs
create function heliograph._commit_reactions(p_project text, p_items jsonb, p_closed integer, p_now timestamptz)
    returns text[] language plpgsql as $$
declare
    v_activations jsonb;
    v_called_back text[];
    v_stops jsonb;
    v_woken text[] := '{}';
    v_changed text[];
    v_far jsonb;  -- {run: the position before the signals that may need a checkpoint}
begin
    with reaction as materialized (
        select r.at, r.run_id, i.turn_id, i.signals, i.reaction, r.signal_seq as base,
               i.recording ->> 'body' as recording, coalesce(i.settles_from - 1, r.signal_seq) as settled_seq,
               coalesce(jsonb_array_length(i.signals), 0) as written,
               coalesce(jsonb_array_length(i.reaction -> 'activations'), 0) as more
          from jsonb_to_recordset(p_items) as i (run_id text, agent_id text, turn_id text, signals jsonb,
                                                 reaction jsonb, recording jsonb, settles_from bigint)
         cross join lateral (
               select x.ctid as at, x.run_id, x.signal_seq from heliograph.runs x
                where x.project_id = p_project and x.run_id = case when i.run_id is null
                    then heliograph._run_of(i.agent_id) else i.run_id end
                  and x.status <> 'ended' offset 0) r
    ), logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, recording)
        select p_project, run_id, base + 1, written, signals, turn_id, p_now, recording from reaction
         where written > 0
    ), changed as (
        update heliograph.runs r
           set signal_seq = n.base + n.written, version = r.version + 1,
               open_turns = r.open_turns - p_closed + n.more, activations = r.activations + n.more,
               state = coalesce(n.reaction -> 'state', r.state), memory = case when n.reaction ? 'is_message'
                   then r.memory || jsonb_build_object('activations_before', r.activations)
                   when n.reaction ? 'keeps_taint' and jsonb_typeof(r.memory -> 'untrusted_keys') = 'array'
                   then n.reaction -> 'memory' || jsonb_build_object('untrusted_keys', r.memory -> 'untrusted_keys')
                   when n.reaction #> '{memory,join_base}' = 'null'
                   then n.reaction -> 'memory' || jsonb_build_object('join_base', n.base)
                   else coalesce(n.reaction -> 'memory', r.memory) end,
               status = coalesce(n.reaction ->> 'status', r.status), outcome = n.reaction ->> 'outcome',
               ended_at = case when n.reaction ->> 'status' = 'ended' then p_now end, updated_at = p_now
          from reaction n
         where r.ctid = n.at
        returning r.run_id, r.status = 'ended' and r.callback_url is not null as calls_back,
                  r.status = 'running' and heliograph._crosses_checkpoint(n.settled_seq, r.signal_seq) as is_far,
                  n.settled_seq
    )
    select (select coalesce(array_agg(c.run_id order by c.run_id), '{}') from changed c),
           (select array_agg(c.run_id order by c.run_id) from changed c where c.calls_back),
           (select jsonb_agg(a.item || jsonb_build_object('run_id', n.run_id, 'base', n.base) order by n.run_id, a.n)
              from reaction n
             cross join lateral jsonb_array_elements(n.reaction -> 'activations') with ordinality a (item, n)
             where n.more > 0),
           (select jsonb_agg(n.reaction -> 'stops' || jsonb_build_object('run_id', n.run_id) order by n.run_id)
              from reaction n where n.reaction ->> 'stops' is not null),
           (select jsonb_object_agg(c.run_id, c.settled_seq) from changed c where c.is_far)
      into v_changed, v_called_back, v_activations, v_stops, v_far;
    if cardinality(v_changed) < jsonb_array_length(p_items) then
        raise exception using errcode = '23514', message = (
            select format('run %s has ended, and a run ends only once: start a run with another id',
                          min(left(x.id, 60)))
              from (select coalesce(i ->> 'run_id', heliograph._run_of(i ->> 'agent_id')) as id
                      from jsonb_array_elements(p_items) i) x
             where not coalesce(x.id = any (v_changed), false));
    end if;
    perform heliograph._feed_runs(p_project, v_changed);
    if v_far is not null then
        perform heliograph._checkpoint(p_project, f.key, f.value::bigint) from jsonb_each_text(v_far) f order by f.key;
    end if;
    if v_called_back is not null then
        perform heliograph._create_run_callbacks(p_project, v_called_back, p_now);
    end if;
    if v_activations is not null then
        v_woken := heliograph._enqueue(p_project, v_activations, p_now);
    end if;
    if v_stops is not null then
        perform heliograph._stop_open_turns(p_project, v_stops, p_now);
    end if;
    return v_woken;
end $$;

-- _stop_open_turns: stop open turns of runs that begin to end. p_stops: [{run_id, turns, reason}]; turns: all,
--   or people for turns that wait only for humans, whose answers have no use any more. The stops are graceful, see
--   stop.
--   locks:  rows of the outbox; the caller holds the runs
create function heliograph._stop_open_turns(p_project text, p_stops jsonb, p_now timestamptz) returns void
    language plpgsql as $$
begin
    perform heliograph._order_stops(p_project, s ->> 'run_id', coalesce(s ->> 'turns' = 'human_waits', false),
                                    jsonb_build_object(
                'mode', 'graceful', 'grace_seconds', null, 'reason', left(s ->> 'reason', 200), 'actor', null), p_now)
       from jsonb_array_elements(p_stops) s;
end $$;

-- _order_stops: put a stop of each open turn of a run into the outbox, so that each ends in its own transaction;
--   p_only_human: only those that wait for humans themselves, since a turn that waits for delegated turns may still get
--   a result. p_body: the stop, {mode, grace_seconds, reason, actor}.
--   locks:  rows of the outbox; the caller holds the run
create function heliograph._order_stops(
    p_project text, p_run_id text, p_only_human boolean, p_body jsonb, p_now timestamptz
) returns void language plpgsql as $$
begin
    insert into heliograph.outbox (project_id, key, kind, agent_turn_id, body, created_at, due_at)
    select p_project, 'stop:' || t.agent_turn_id, 'stop', t.agent_turn_id, p_body, p_now, p_now
      -- only the open turns of the run
      from (select x.agent_turn_id, x.state, x.human_wait_since from heliograph.agent_turns x
             where x.project_id = p_project and x.run_id = p_run_id order by x.queue_seq offset 0) t
     where t.state <> 'done' and (not p_only_human or t.human_wait_since is not null and not exists (
           select from heliograph.turn_waiting_tools w
            where w.project_id = p_project and w.agent_turn_id = t.agent_turn_id and w.state = 'open'
              and w.kind = 'child'))
     order by t.agent_turn_id
    -- a stop that was delivered before is sent again, unless it was the stronger one
    on conflict (project_id, key) do update
       set body = excluded.body, due_at = excluded.due_at, deliveries = 0, published_at = null
     where outbox.body ->> 'mode' <> 'force' or excluded.body ->> 'mode' = 'force';
end $$;
