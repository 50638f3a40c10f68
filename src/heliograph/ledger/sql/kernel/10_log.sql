-- The signal log: the one statement that appends to it, and the ids it gives.

-- _signal_id: the id of the signal at one position of a run's log (heliograph.ids.signal_id says the same).
--   raises: nothing
--   locks:  nothing
create function heliograph._signal_id(p_run_id text, p_seq bigint) returns text
    language sql immutable as $$
    select 'sig_' || p_run_id || '_' || p_seq
$$;

-- _write_signals: append drafts to a run's log, in their order, after position p_base.
--   A draft is {name, payload, agent, parent, at, owed}; parent is a signal's id, or the index of an
--   earlier draft of the same call. Answers the number written. The caller raises runs.signal_seq.
--   raises: 23514 for a second root or a signal without a parent
--   locks:  nothing; the caller holds the run
create function heliograph._write_signals(
    p_project text, p_run_id text, p_base bigint, p_turn_id text, p_drafts jsonb, p_now timestamptz
) returns integer language plpgsql as $$
declare
    v_written integer;
begin
    insert into heliograph.signals
        (project_id, run_id, seq, name, payload, at, agent, parent_id, agent_turn_id, owed)
    select p_project, p_run_id, p_base + d.n, d.draft ->> 'name', coalesce(d.draft -> 'payload', '{}'),
           coalesce((d.draft ->> 'at')::timestamptz, p_now), d.draft ->> 'agent',
           case jsonb_typeof(d.draft -> 'parent')
               when 'number' then heliograph._signal_id(p_run_id, p_base + 1 + (d.draft -> 'parent')::bigint)
               else d.draft ->> 'parent'
           end,
           p_turn_id, coalesce((d.draft ->> 'owed')::boolean, false)
      from jsonb_array_elements(p_drafts) with ordinality d (draft, n)
     order by d.n;
    get diagnostics v_written = row_count;
    return v_written;
end $$;
