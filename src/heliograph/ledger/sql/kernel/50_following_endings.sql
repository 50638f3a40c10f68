-- Endings that follow each other: a worker computes the reaction to one ending from the run that another makes, and
-- sends both in one call. The second counts only if the first does (K24d). A round commits them together: each has its
-- row in the log, and the run is written once (decision 0149).

-- _following: how the endings of a call share rounds. p_runs: the run of each. steps: of each, how many of its round
--   come before it in its run; 0 for an ending that begins a round. ahead: how many signals these have. Null if no item
--   follows another.
--   An ending joins the round of the one that it follows if the limits and the queues are the same without that one:
--   neither activates, and the first ends nothing but its turn. The memory of the last one replaces those before.
create function heliograph._following(p_items jsonb, p_runs text[], out steps integer[], out ahead bigint[])
    language plpgsql immutable as $$
begin
    if cardinality(p_runs) = 1 or not jsonb_path_exists(p_items, '$[*].follows ? (@ != null)') then
        return;  -- the usual case
    end if;
    with item as (
        select n, p_runs[n] as run_id, i.item ->> 'turn_id' as turn_id, i.item ->> 'follows' as follows,
               coalesce(jsonb_array_length(i.item -> 'signals'), 0) as written,
               i.item -> 'reaction' ?| '{status,stops}' as ends_more,
               i.item #> '{reaction,activations,0}' is null as is_quiet,
               i.item -> 'reaction' ? 'memory' and not i.item -> 'reaction' ?| '{keeps_taint,is_message}' as is_whole,
               row_number() over (partition by i.item ->> 'agent_id' order by n) = 1 as is_first
          from generate_subscripts(p_runs, 1) n cross join lateral (select p_items -> (n - 1) as item offset 0) i
    ), linked as (
        select n, run_id, written,
               coalesce(follows = lag(turn_id) over r and is_quiet and lag(is_quiet) over r and is_whole and is_first
                        and not lag(ends_more) over r, false) as joins
          from item window r as (partition by run_id order by n)
    ), numbered as (
        select n, run_id, written, count(*) filter (where not joins) over (partition by run_id order by n) as round
          from linked
    )
    select array_agg(p.step order by p.n), array_agg(p.before order by p.n) into steps, ahead
      from (select n, row_number() over r - 1 as step, sum(written) over r - written as before
              from numbered window r as (partition by run_id, round order by n)) p;
end $$;

-- _after_rejected: the places of a round whose ending follows one that was not accepted, and that would have been
--   judged by its reaction. p_steps: see _following. p_parts: {place: answer} of the endings that were not accepted.
create function heliograph._after_rejected(p_places integer[], p_runs text[], p_steps integer[], p_parts jsonb)
    returns integer[] language sql immutable as $$
    select coalesce(array_agg(n order by n), '{}')
      from (select n, bool_or(p_parts ? n::text) over (partition by p_runs[n] order by n
                              rows between unbounded preceding and 1 preceding) as is_after
              from unnest(p_places) n) p
     where is_after and p_steps[n] > 0
       and coalesce(p_parts -> n::text ->> 'outcome' not in ('stale', 'duplicate'), true)
$$;

-- _conflicts: {place: answer} of endings whose reactions were computed from another run than there is now.
create function heliograph._conflicts(p_project text, p_places integer[], p_runs text[]) returns jsonb
    language sql stable as $$
    select jsonb_object_agg(n, jsonb_build_object('outcome', 'conflict', 'run', r.view))
      from unnest(p_places) n
     cross join lateral (
           select heliograph._run_view(x) as view from heliograph.runs x
            where x.project_id = p_project and x.run_id = p_runs[n] offset 0) r
$$;

-- _log_followed: write the endings of a round that another one of their run follows: their signals, and their share of
--   the run. p_items: the accepted endings of the round, in order. Returns the last one of each run, with settles_from
--   (see _commit_reactions): its reaction is still to commit.
--   The caller holds the runs.
create function heliograph._log_followed(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_last jsonb;
begin
    with ending as materialized (
        select i.n, i.item, r.at, r.run_id, r.signal_seq as base, lead(i.n) over w is not null as is_followed,
               coalesce(jsonb_array_length(i.item -> 'signals'), 0) as written,
               sum(coalesce(jsonb_array_length(i.item -> 'signals'), 0)) over w as upto
          from jsonb_array_elements(p_items) with ordinality i (item, n)
         cross join lateral (
               select x.ctid as at, x.run_id, x.signal_seq from heliograph.runs x
                where x.project_id = p_project and x.run_id = heliograph._run_of(i.item ->> 'agent_id') offset 0) r
        window w as (partition by r.run_id order by i.n)
    ), logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, recording)
        select p_project, run_id, base + 1 + upto - written, written, item -> 'signals', item ->> 'turn_id', p_now,
               item #>> '{recording,body}'
          from ending where is_followed and written > 0
    ), changed as (
        update heliograph.runs r
           set signal_seq = r.signal_seq + f.written, version = r.version + f.count,
               open_turns = r.open_turns - f.count, state = coalesce(f.states[cardinality(f.states)], r.state)
          from (select at, sum(written) as written, count(*) as count,
                       array_agg(item #> '{reaction,state}' order by n)
                       filter (where item #> '{reaction,state}' is not null) as states
                  from ending where is_followed group by at) f
         where r.ctid = f.at
    )
    select jsonb_agg(item || jsonb_build_object('settles_from', base + 1) order by n) into v_last
      from ending where not is_followed;
    return v_last;
end $$;
