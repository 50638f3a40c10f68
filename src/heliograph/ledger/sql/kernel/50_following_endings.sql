-- Endings that follow each other: a worker computes the reaction to one ending from the run that another makes, and
-- sends both in one call. The second counts only if the first does (K24d). A round commits them together: each has its
-- row in the log, and the run is written once (decision 0149).

-- _following: how the endings of a call are divided into rounds. p_runs: the run of each. rounds: the number of its
--   round. steps: how many of its round come before it in its run; 0 for an ending that begins a round. ahead: how many
--   signals these have. Both are null if no item follows another: then a round has one item of each run, see _rounds.
--   An ending joins the round of the one that it follows if the limits and the queues are the same without that one:
--   neither activates, and the first ends nothing but its turn. The memory of the last one replaces those before.
create function heliograph._following(
    p_runs text[], p_agent_id text[], p_turn_id text[], p_follows text[], p_signals jsonb[], p_reaction jsonb[],
    out rounds integer[], out steps integer[], out ahead bigint[]
) language plpgsql immutable as $$
begin
    if cardinality(p_runs) = 1 then
        rounds := '{1}';  -- the usual case at low load, without a sort
        return;
    elsif array_remove(p_follows, null) = '{}' then
        rounds := array(select row_number() over (partition by p_runs[n] order by n)
                          from generate_subscripts(p_runs, 1) n order by n);
        return;
    end if;
    with item as (
        select n, p_runs[n] as run_id, p_turn_id[n] as turn_id, p_follows[n] as follows,
               coalesce(jsonb_array_length(p_signals[n]), 0) as written,
               p_reaction[n] ?| '{status,stops}' as ends_more,
               p_reaction[n] #> '{activations,0}' is null as is_quiet,
               p_reaction[n] ? 'memory' and not p_reaction[n] ?| '{keeps_taint,is_message}' as is_whole,
               row_number() over (partition by p_agent_id[n] order by n) = 1 as is_first
          from generate_subscripts(p_runs, 1) n
    ), linked as (
        select n, run_id, written,
               coalesce(follows = lag(turn_id) over r and is_quiet and lag(is_quiet) over r and is_whole and is_first
                        and not lag(ends_more) over r, false) as joins
          from item window r as (partition by run_id order by n)
    ), numbered as (
        select n, run_id, written, count(*) filter (where not joins) over (partition by run_id order by n) as round
          from linked
    )
    select array_agg(p.round order by p.n), array_agg(p.step order by p.n), array_agg(p.before order by p.n)
      into rounds, steps, ahead
      from (select n, round, row_number() over r - 1 as step, sum(written) over r - written as before
              from numbered window r as (partition by run_id, round order by n)) p;
end $$;

-- _log_followed: write the endings of a round that another one of their run follows: their signals, and their share of
--   the run. p_places: the accepted endings of the round, in order; the other arrays: see _commit_reactions. places:
--   the last ending of each run, whose reaction is still to commit. settled: for _commit_reactions, at these places.
--   The caller holds the runs.
create function heliograph._log_followed(
    p_project text, p_places integer[], p_run_ids text[], p_turn_ids text[], p_signals jsonb[], p_reactions jsonb[],
    p_recordings text[], p_now timestamptz, out places integer[], out settled bigint[]
) language plpgsql as $$
declare
    v_bases bigint[];
begin
    with ending as materialized (
        select p.n, r.at, r.run_id, r.signal_seq as base, lead(p.n) over w is not null as is_followed,
               coalesce(jsonb_array_length(p_signals[p.n]), 0) as written,
               sum(coalesce(jsonb_array_length(p_signals[p.n]), 0)) over w as upto
          from unnest(p_places) p (n)
         cross join lateral (
               select x.ctid as at, x.run_id, x.signal_seq from heliograph.runs x
                where x.project_id = p_project and x.run_id = p_run_ids[p.n] offset 0) r
        window w as (partition by r.run_id order by p.n)
    ), logged as (
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, recording)
        select p_project, run_id, base + 1 + upto - written, written, p_signals[n], p_turn_ids[n], p_now,
               p_recordings[n]
          from ending where is_followed and written > 0
    ), changed as (
        update heliograph.runs r
           set signal_seq = r.signal_seq + f.written, version = r.version + f.count,
               open_turns = r.open_turns - f.count, state = coalesce(f.states[cardinality(f.states)], r.state)
          from (select at, sum(written) as written, count(*) as count,
                       array_agg(p_reactions[n] -> 'state' order by n)
                       filter (where p_reactions[n] -> 'state' is not null) as states
                  from ending where is_followed group by at) f
         where r.ctid = f.at
    )
    select array_agg(n order by n), array_agg(base order by n) into places, v_bases
      from ending where not is_followed;
    for k in 1 .. cardinality(places) loop
        settled[places[k]] := v_bases[k];
    end loop;
end $$;
