-- Runs: the input of a reaction, and its commit.

-- _run_view: the input from which a reaction is computed; its version guards the commit (K24).
create function heliograph._run_view(p_run heliograph.runs) returns json
    language sql stable as $$
    select json_build_object('run_id', p_run.run_id, 'status', p_run.status, 'version', p_run.version,
                             'state', p_run.state, 'memory', p_run.memory, 'open_turns', p_run.open_turns,
                             'pending_reactions', p_run.pending_reactions, 'activations', p_run.activations)
$$;

-- _commit_reactions: commit reactions {activations, state, memory, status, outcome, stops, keeps_taint, is_message}
--   with their signals, of runs that do not repeat. A key that is absent changes nothing.
--   p_places: the places of these runs in the arrays that follow. p_signals: the drafts; null for none. p_recordings:
--   see _recording_of. p_settled: the position of the log before the first signal that was pending until this reaction;
--   null if that is its own first signal. p_closed: how many turns of each run have ended in this transaction. stops:
--   see _stop_open_turns. is_message, keeps_taint: see _adapted_memory.
--   Returns the agents that it woke.
--   The caller has compared the versions.
--   raises: 23514 for a run that has ended, or would end with a turn open or a reaction pending (K26); see _enqueue
--   locks:  see _enqueue; the caller holds the heads of the activated agents and the runs
create function heliograph._commit_reactions(
    p_project text, p_places integer[], p_run_ids text[], p_turn_ids text[], p_signals jsonb[], p_reactions jsonb[],
    p_recordings text[], p_settled bigint[], p_closed integer, p_now timestamptz
) returns text[] language plpgsql as $$
declare
    v_changed text[];
    v_has_more boolean;  -- the reactions have an effect beyond their runs and their signals
begin
    with changed as (
        update heliograph.runs r
           set signal_seq = r.signal_seq + i.written, version = r.version + 1,
               open_turns = r.open_turns - p_closed + i.more, activations = r.activations + i.more,
               state = coalesce(i.reaction -> 'state', r.state),
               memory = case when heliograph._adapts_memory(i.reaction)
                             then heliograph._adapted_memory(i.reaction, r.memory, r.activations, r.signal_seq)
                             else coalesce(i.reaction -> 'memory', r.memory) end,
               status = coalesce(i.reaction ->> 'status', r.status), outcome = i.reaction ->> 'outcome',
               ended_at = case when i.reaction ->> 'status' = 'ended' then p_now end, updated_at = p_now
          from (select p.n, x.at, p_reactions[p.n] as reaction,
                       coalesce(jsonb_array_length(p_signals[p.n]), 0) as written,
                       coalesce(jsonb_array_length(p_reactions[p.n] -> 'activations'), 0) as more
                  from unnest(p_places) p (n)
                 cross join lateral (
                       select c.ctid as at from heliograph.runs c
                        where c.project_id = p_project and c.run_id = p_run_ids[p.n]
                          and c.status <> 'ended' offset 0) x) i
         where r.ctid = i.at
        returning i.n, i.written, r.run_id, r.signal_seq - i.written as base,
                  i.more > 0 or i.reaction ->> 'stops' is not null or r.callback_url is not null
                  or heliograph._crosses_checkpoint(coalesce(p_settled[i.n], r.signal_seq - i.written), r.signal_seq)
                  as has_more
    ), logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, recording)
        select p_project, run_id, base + 1, written, p_signals[n], p_turn_ids[n], p_now, p_recordings[n]
          from changed where written > 0
    )
    select array_agg(run_id order by n), bool_or(has_more) into v_changed, v_has_more from changed;
    if coalesce(cardinality(v_changed), 0) < cardinality(p_places) then
        perform heliograph._raise_ended(array(select p_run_ids[n] from unnest(p_places) n), v_changed);
    end if;
    perform heliograph._feed_runs(p_project, v_changed);
    if v_has_more then
        return heliograph._follow_reactions(p_project, p_places, p_run_ids, p_signals, p_reactions, p_settled, p_now);
    end if;
    return '{}';
end $$;

-- _adapts_memory: whether the new memory of a run is not simply that of its reaction. Inlined.
create function heliograph._adapts_memory(p_reaction jsonb) returns boolean
    language sql immutable as $$
    select p_reaction ?| '{is_message,keeps_taint}' or p_reaction #> '{memory,join_base}' = 'null'
$$;

-- _adapted_memory: the new memory of a run. is_message: a message from outside restarts the count of max_activations.
--   keeps_taint: the untrusted keys of the run's memory remain, even if the new memory differs. memory.join_base: if it
--   is null, it becomes p_base, the position before the signals.
create function heliograph._adapted_memory(p_reaction jsonb, p_memory jsonb, p_activations integer, p_base bigint)
    returns jsonb language plpgsql immutable as $$
begin
    if p_reaction ? 'is_message' then
        return p_memory || jsonb_build_object('activations_before', p_activations);
    elsif p_reaction ? 'keeps_taint' and jsonb_typeof(p_memory -> 'untrusted_keys') = 'array' then
        return p_reaction -> 'memory' || jsonb_build_object('untrusted_keys', p_memory -> 'untrusted_keys');
    elsif p_reaction #> '{memory,join_base}' = 'null' then
        return p_reaction -> 'memory' || jsonb_build_object('join_base', p_base);
    end if;
    return coalesce(p_reaction -> 'memory', p_memory);
end $$;

-- _raise_ended: raise the error of the first of these runs that has ended, and is therefore not among the changed ones.
--   raises: 23514
create function heliograph._raise_ended(p_run_ids text[], p_changed text[]) returns void
    language plpgsql as $$
begin
    raise exception using errcode = '23514', message = (
        select format('run %s has ended, and a run ends only once: start a run with another id', min(left(x.id, 60)))
          from unnest(p_run_ids) x (id) where not coalesce(x.id = any (p_changed), false));
end $$;

-- _follow_reactions: write what reactions bring beside their runs and their signals: checkpoints, callbacks of runs
--   that end, turns, and stops of turns. The arrays: see _commit_reactions. Returns the agents that it woke.
--   raises: see _enqueue
--   locks:  see _enqueue; the caller holds the heads of the activated agents and the runs
create function heliograph._follow_reactions(
    p_project text, p_places integer[], p_run_ids text[], p_signals jsonb[], p_reactions jsonb[], p_settled bigint[],
    p_now timestamptz
) returns text[] language plpgsql as $$
declare
    v_bases bigint[] := array(  -- the positions before the signals
        select r.signal_seq - coalesce(jsonb_array_length(p_signals[p.n]), 0)
          from unnest(p_places) with ordinality p (n, k)
         cross join lateral (select x.signal_seq from heliograph.runs x
                              where x.project_id = p_project and x.run_id = p_run_ids[p.n] offset 0) r
         order by p.k);
    v_called_back text[];
    v_activations jsonb;
    v_stops jsonb;
    v_woken text[] := '{}';
begin
    perform heliograph._checkpoint(p_project, r.run_id, coalesce(p_settled[w.n], w.base))
       from unnest(p_places, v_bases) w (n, base)
      cross join lateral (
            select x.run_id, x.signal_seq from heliograph.runs x
             where x.project_id = p_project and x.run_id = p_run_ids[w.n] and x.status = 'running' offset 0) r
      where heliograph._crosses_checkpoint(coalesce(p_settled[w.n], w.base), r.signal_seq)
      order by r.run_id;
    select array_agg(r.run_id order by r.run_id) into v_called_back
      from unnest(p_places) n
     cross join lateral (
           select x.run_id from heliograph.runs x
            where x.project_id = p_project and x.run_id = p_run_ids[n] and x.status = 'ended'
              and x.callback_url is not null offset 0) r;
    if v_called_back is not null then
        perform heliograph._create_run_callbacks(p_project, v_called_back, p_now);
    end if;
    select jsonb_agg(a.item || jsonb_build_object('run_id', p_run_ids[w.n], 'base', w.base)
                     order by p_run_ids[w.n], a.place)
      into v_activations
      from unnest(p_places, v_bases) w (n, base)
     cross join lateral jsonb_array_elements(p_reactions[w.n] -> 'activations') with ordinality a (item, place);
    if v_activations is not null then
        v_woken := heliograph._enqueue(p_project, v_activations, p_now);
    end if;
    select jsonb_agg(p_reactions[n] -> 'stops' || jsonb_build_object('run_id', p_run_ids[n]) order by p_run_ids[n])
      into v_stops from unnest(p_places) n where p_reactions[n] ->> 'stops' is not null;
    if v_stops is not null then
        perform heliograph._stop_open_turns(p_project, v_stops, p_now);
    end if;
    return v_woken;
end $$;

-- _stop_open_turns: stop open turns of runs that begin to end. p_stops: [{run_id, turns, reason}]; turns: all,
--   or human_waits for turns that wait only for humans, whose answers have no use any more. The stops are graceful, see
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
