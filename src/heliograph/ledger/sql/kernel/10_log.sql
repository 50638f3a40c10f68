-- The signal log: one row per commit, with the signals as their writer sent them; and the ids of signals.

-- _signal_id: the id of the signal at one position of a run's log, as heliograph.ids.signal_id computes it.
create function heliograph._signal_id(p_run_id text, p_seq bigint) returns text
    language sql immutable as $$
    -- the cast: text || bigint is not immutable, and so would not be inlined
    select 'sig_' || p_run_id || '_' || p_seq::text
$$;

-- _full_id: the id of a signal that an entry of a run's log names by its id, or by its position as a text.
create function heliograph._full_id(p_run_id text, p_parent text) returns text
    language sql immutable as $$
    select case when p_parent ~ '^[1-9][0-9]{0,17}$' then 'sig_' || p_run_id || '_' || p_parent else p_parent end
$$;

-- _owner_at: the run that recorded one position of a run's log. The first positions of a fork's log are those of the
--   run from which it was forked (decision 0072). Null for an unknown run.
create function heliograph._owner_at(p_project text, p_run_id text, p_seq bigint) returns text
    language sql stable as $$
    with recursive owner (run_id, forked_from, forked_seq) as (
        select r.run_id, r.forked_from, r.forked_seq from heliograph.runs r
         where r.project_id = p_project and r.run_id = p_run_id
        union all
        select r.run_id, r.forked_from, r.forked_seq from owner o
         cross join lateral (select x.run_id, x.forked_from, x.forked_seq from heliograph.runs x
                              where x.project_id = p_project and x.run_id = o.forked_from offset 0) r
         where p_seq <= o.forked_seq)
    select o.run_id from owner o where p_seq > coalesce(o.forked_seq, 0)
$$;

-- _log_parts: the parts of a run's log: whose rows hold the positions after `after`, up to `upto`. One part, and one
--   more for each run from which it was forked. Every reader of a log reads these, and not heliograph.signals by its
--   run alone. A fork whose own log is being pruned has lost the shared part as well.
create function heliograph._log_parts(p_project text, p_run_id text)
    returns table (run_id text, after bigint, upto bigint) language sql stable as $$
    with recursive part (run_id, forked_from, after, upto, is_whole) as (
        select r.run_id, r.forked_from, coalesce(r.forked_seq, 0), 9223372036854775807,
               r.pruned_seq <= coalesce(r.forked_seq, 0)
          from heliograph.runs r where r.project_id = p_project and r.run_id = p_run_id
        union all
        select r.run_id, r.forked_from, coalesce(r.forked_seq, 0), p.after, true from part p
         cross join lateral (select x.run_id, x.forked_from, x.forked_seq from heliograph.runs x
                              where x.project_id = p_project and x.run_id = p.forked_from offset 0) r
         where p.is_whole)
    select p.run_id, p.after, p.upto from part p
$$;

-- _run_of: the run that an agent belongs to. An agent_id is run_id/name or run_id/name/instance, and no run id has a
--   slash.
create function heliograph._run_of(p_agent_id text) returns text
    language sql immutable as $$
    select split_part(p_agent_id, '/', 1)
$$;

-- _runs_of: the runs that agents belong to, see _run_of.
create function heliograph._runs_of(p_agent_ids text[]) returns text[]
    language plpgsql immutable as $$
declare
    v_runs text[] := '{}';
begin
    for n in 1 .. coalesce(cardinality(p_agent_ids), 0) loop  -- cheaper than a query
        v_runs[n] := heliograph._run_of(p_agent_ids[n]);
    end loop;
    return v_runs;
end $$;

-- _root_id: the id of the first signal of a run's log.
create function heliograph._root_id(p_project text, p_run_id text) returns text
    language sql stable as $$
    select heliograph._signal_id(heliograph._owner_at(p_project, p_run_id, 1), 1)
$$;

-- _log: append entries to a run's log after its newest signal, and raise signal_seq and, for entries with is_pending,
--   pending_reactions and version. For the kernel's own signals and for writers that commit no reaction. p_recording:
--   see _recording_of. Returns the position of the first.
--   The caller holds the run.
create function heliograph._log(
    p_project text, p_run_id text, p_turn_id text, p_entries jsonb, p_now timestamptz, p_recording text default null
) returns bigint language plpgsql as $$
declare
    v_count integer := jsonb_array_length(p_entries);
    v_pending integer := (select count(*) from jsonb_array_elements(p_entries) e where (e ->> 'is_pending')::boolean);
    v_first bigint;
    v_is_settled boolean;
begin
    update heliograph.runs
       set signal_seq = signal_seq + v_count, pending_reactions = pending_reactions + v_pending,
           version = version + sign(v_pending)::integer, updated_at = p_now
     where project_id = p_project and run_id = p_run_id
    returning signal_seq - v_count + 1, pending_reactions = 0 into v_first, v_is_settled;
    insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, is_pending, recording)
    values (p_project, p_run_id, v_first, v_count, p_entries, p_turn_id, p_now, v_pending > 0, p_recording);
    perform heliograph._feed_runs(p_project, array[p_run_id]);
    if v_is_settled and heliograph._crosses_checkpoint(v_first - 1, v_first - 1 + v_count) then
        perform heliograph._checkpoint(p_project, p_run_id, v_first - 1);
    end if;
    return v_first;
end $$;

-- _count_pending: how many of these drafts have is_pending.
create function heliograph._count_pending(p_drafts jsonb) returns integer
    language sql immutable as $$
    select case when p_drafts @> '[{"is_pending": true}]'
                then jsonb_array_length(jsonb_path_query_array(p_drafts, '$[*] ? (@.is_pending == true)')) else 0 end
$$;

-- _log_drafts: append the drafts of a round to the logs of their runs, and make them known. p_places: the places of
--   the items of the round, in the arrays that have one value for each item of the call. The others have one for each
--   item of the round. p_base: the newest signal of the run. p_written: the number of drafts; with 0 the item has none.
--   p_pending: how many of them have is_pending.
--   The caller holds the runs.
create function heliograph._log_drafts(
    p_project text, p_places integer[], p_run_id text[], p_turn_id text[], p_drafts jsonb[], p_recording jsonb[],
    p_run_at tid[], p_base bigint[], p_written integer[], p_pending integer[], p_now timestamptz
) returns void language plpgsql as $$
declare
    v_logged text[] := '{}';
begin
    insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, is_pending, recording)
    select p_project, p_run_id[u.n], p_base[u.k] + 1, p_written[u.k], p_drafts[u.n], p_turn_id[u.n], p_now,
           p_pending[u.k] > 0, heliograph._recording_of(p_recording[u.n])
      from unnest(p_places) with ordinality u (n, k) where p_written[u.k] > 0;
    update heliograph.runs r
       set signal_seq = r.signal_seq + p_written[k], pending_reactions = r.pending_reactions + p_pending[k],
           version = r.version + sign(p_pending[k])::integer, updated_at = p_now
      from generate_subscripts(p_places, 1) k where r.ctid = p_run_at[k] and p_written[k] > 0;
    for k in 1 .. cardinality(p_places) loop
        if p_written[k] > 0 then
            v_logged := v_logged || p_run_id[p_places[k]];
            if heliograph._crosses_checkpoint(p_base[k], p_base[k] + p_written[k]) then
                perform heliograph._checkpoint(p_project, p_run_id[p_places[k]], p_base[k]);
            end if;
        end if;
    end loop;
    perform heliograph._feed_runs(p_project, v_logged);
end $$;

-- _is_signal_id: whether a text has the form of a signal's id, of any run.
create function heliograph._is_signal_id(p_id text) returns boolean
    language sql immutable as $$
    select p_id ~ '^sig_[^/:\u0001-\u001f\u007f-\u009f]+_[1-9][0-9]{0,17}$'
$$;

-- _is_earlier: whether the end of a signal's id is a position of its run's log up to p_base. If the end is not a
--   number, the id belongs to a run whose own id begins like this one's: then whether that is the id of a signal.
create function heliograph._is_earlier(p_end text, p_base bigint) returns boolean
    language sql immutable as $$
    -- numeric holds any number of digits; a pattern that bounded them would take twice as long
    select case when p_end ~ '^[1-9][0-9]*$' then p_end::numeric <= p_base
                else heliograph._is_signal_id('sig_' || p_end) end
$$;

-- _at_place: the message about a draft of a call.
create function heliograph._at_place(p_place bigint, p_problem text) returns text
    language plpgsql immutable as $$
begin
    return format('signals[%s]%s', p_place, p_problem);
end $$;

-- _is_usual_draft: whether a draft has the form that clients send, with neither trust nor is_pending. Inlined, and
--   short: PostgreSQL sets up each of its expressions once per transaction, which costs more than their evaluation.
create function heliograph._is_usual_draft(p_draft jsonb) returns boolean
    language sql immutable as $$
    select case when jsonb_typeof(p_draft) = 'object' then
        p_draft - '{name,payload,agent,parent,at}'::text[] = '{}'
        -- a missing key has no type, so that no comparison with its type is true
        and p_draft @@ '$.name.type() == "string" && !($.agent.type() != "string" && $.agent.type() != "null")
                        && !($.at.type() != "number" && $.at.type() != "string" && $.at.type() != "null")'
        and octet_length(p_draft ->> 'name') between 1 and 200
        and (octet_length(p_draft ->> 'agent') <= 200) is not false end
$$;

-- _wrong_draft: null, or the problem of a draft, apart from its parent. p_place: its index in its call.
create function heliograph._wrong_draft(p_place bigint, p_draft jsonb) returns text
    language plpgsql immutable as $$
begin
    return case
        when jsonb_typeof(p_draft) <> 'object' then heliograph._at_place(p_place, ' must be an object')
        when p_draft - '{at,name,agent,parent,payload,trust,is_pending}'::text[] <> '{}'
        then heliograph._wrong_keys('signals[]', p_draft, '{name,payload,agent,parent,at,trust,is_pending}')
        when not coalesce(jsonb_typeof(p_draft -> 'name') = 'string'
                          and octet_length(p_draft ->> 'name') between 1 and 200, false)
        then heliograph._at_place(p_place, '.name must be a string of 1 to 200 bytes')
        when not coalesce(jsonb_typeof(p_draft -> 'agent') in ('string', 'null')
                          and octet_length(p_draft ->> 'agent') <= 200,
                          p_draft ->> 'agent' is null)
        then heliograph._at_place(p_place, '.agent must be the name of an agent, of at most 200 bytes, or null')
        when not coalesce(jsonb_typeof(p_draft -> 'is_pending') in ('boolean', 'null'), true)
        then heliograph._at_place(p_place, '.is_pending must be true or false')
        when not coalesce(jsonb_typeof(p_draft -> 'at') in ('number', 'string', 'null'), true)
        then heliograph._at_place(p_place, '.at must be a number of microseconds, a string, or null')
        when not coalesce(p_draft ->> 'trust' in ('trusted', 'untrusted'), true)
        then heliograph._at_place(p_place, '.trust must be trusted or untrusted') end;
end $$;

-- _is_known_parent: whether the parent of a draft is a signal that the log of its run has after p_base signals: its id,
--   or its position as a text. The id of a signal of another run is accepted without a look-up, as in the doctor's R5.
create function heliograph._is_known_parent(p_run_id text, p_base bigint, p_parent text) returns boolean
    language sql immutable as $$
    select case when octet_length(p_parent) > 223 then false
                when starts_with(p_parent, 'sig_' || p_run_id || '_')
                then heliograph._is_earlier(substr(p_parent, length(p_run_id) + 6), p_base)
                when p_parent ~ '^[1-9][0-9]{0,17}$' then p_parent::bigint <= p_base
                else heliograph._is_signal_id(p_parent) end
$$;

-- _signal_at: one signal of a run's log: {id, name, payload, agent, turn_id, trust}. turn_id: the turn that emitted it.
--   Only an untrusted signal has trust. Null for a pruned signal.
create function heliograph._signal_at(p_project text, p_run_id text, p_seq bigint) returns table (signal jsonb)
    language sql stable as $$
    select jsonb_build_object('id', heliograph._signal_id(p_run_id, p_seq), 'name', e -> 'name',
                              'payload', coalesce(e -> 'payload', '{}'), 'agent', e -> 'agent',
                              'turn_id', agent_turn_id)
           || case when e ->> 'trust' = 'untrusted' then jsonb '{"trust": "untrusted"}' else '{}' end
      from (select case when p_seq < s.seq + s.count then s.entries -> (p_seq - s.seq)::integer end as e,
                   s.agent_turn_id
              from heliograph.signals s
             where s.project_id = p_project and s.run_id = p_run_id and s.seq <= p_seq
             order by s.seq desc limit 1) found
     where e is not null
$$;
