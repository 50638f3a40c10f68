-- The effects of a signal: the signals that it caused, directly or over others, in the order of its run's log.
--
-- A parent comes before its children, so one pass over a part of the log finds them. Whether a signal whose parent lies
-- before that part is an effect is found by its causes.
--
-- `entries || '[]'` is the same value in memory: each look into a stored one reads and decompresses the whole commit.

-- _is_effect: whether a signal is p_of itself or one of its effects, in the same run; null if that takes more than
--   p_steps_max look-ups. steps: how many it took.
create function heliograph._is_effect(
    p_project text, p_run_id text, p_of bigint, p_seq bigint, p_steps_max integer, out verdict boolean,
    out steps integer
) language plpgsql stable as $$
declare
    v_prefix constant text := 'sig_' || p_run_id || '_';
    v_seq bigint := p_seq;  -- walks up: every look-up is by the key of signals
    v_first bigint;
    v_count integer;
    v_entries jsonb;
    v_parent text;
begin
    steps := 0;
    while v_seq > p_of loop
        if steps = p_steps_max then
            return;
        end if;
        if v_first is null or v_seq < v_first then  -- otherwise the commit of the signal before has this one, too
            steps := steps + 1;
            select s.seq, s.count, s.entries || '[]' into v_first, v_count, v_entries from heliograph.signals s
             where s.project_id = p_project and s.run_id = p_run_id and s.seq <= v_seq order by s.seq desc limit 1;
            exit when not found or v_seq >= v_first + v_count;
        end if;
        v_parent := heliograph._parent_id(p_run_id, v_first, v_entries -> (v_seq - v_first)::integer);
        exit when not coalesce(starts_with(v_parent, v_prefix), false);
        v_parent := substr(v_parent, length(v_prefix) + 1);
        exit when v_parent !~ '^[1-9][0-9]{0,17}$' or v_parent::bigint >= v_seq;
        v_seq := v_parent::bigint;
    end loop;
    verdict := v_seq = p_of;
end $$;

-- _reject_subject: null, or the rejection of a subject that is neither a signal of the log nor a run: see
--   _reject_signal; unknown_run.
create function heliograph._reject_subject(p_project text, p_subject text) returns jsonb
    language plpgsql stable as $$
begin
    if exists (select from heliograph._signal_place(p_subject)) then
        return heliograph._reject_signal(p_project, p_subject);
    elsif exists (select from heliograph.runs where project_id = p_project and run_id = p_subject) then
        return null;
    elsif exists (select from heliograph.pruned where project_id = p_project and id = 'run:' || p_subject) then
        return heliograph._rejection('pruned_run', format('run %s is pruned', p_subject));
    end if;
    return heliograph._rejection('unknown_run', format('no run %s', left(p_subject, 200)));
end $$;

-- _effects_from: up to p_limit effects of the signal at p_root of a run, itself included, from position p_start on, at
--   or after p_root: those that are within 20,000 signals. last: the position up to which they are complete.
--   is_too_deep: they are not, even for the first signal, after p_steps_max look-ups of causes.
--   A commit none of whose signals has an effect as a cause in an earlier commit contains none, and is skipped as a
--   whole.
create function heliograph._effects_from(
    p_project text, p_run_id text, p_root bigint, p_start bigint, p_limit integer, p_steps_max integer,
    out signals jsonb, out last bigint, out is_too_deep boolean
) language plpgsql stable as $$
declare
    v_reads_max constant integer := 20000;
    v_prefix constant text := 'sig_' || p_run_id || '_';
    v_is_effect boolean[];  -- by the position from p_start; null: it is none
    v_is_outside_effect boolean[];  -- causes before p_start that are known, by the distance from it
    v_steps_left integer := p_steps_max;
    v_commit record;
    v_has_effects boolean;
    v_entries jsonb;
    v_entry jsonb;
    v_parent text;
    v_seq bigint;
    v_cause bigint;
    v_verdict boolean;
    v_signals jsonb[] := '{}';
begin
    is_too_deep := false;
    <<log>>
    for v_commit in
        select s.seq, s.count, s.entries, s.at, s.agent_turn_id,
               jsonb_path_query_array(s.entries, '$[*].parent ? (@.type() == "string")') as parents
          from heliograph.signals s
         where s.project_id = p_project and s.run_id = p_run_id and s.seq >= (
               select x.seq from heliograph.signals x
                where x.project_id = p_project and x.run_id = p_run_id and x.seq <= p_start
                order by x.seq desc limit 1)
         order by s.seq
    loop
        exit when v_commit.seq >= p_start + v_reads_max;
        v_has_effects := v_commit.seq <= p_start;
        for v_place in 0 .. jsonb_array_length(v_commit.parents) - 1 loop
            exit when v_has_effects;
            continue when v_commit.parents ->> v_place = v_parent;
            v_parent := v_commit.parents ->> v_place;
            v_cause := heliograph._place_within(v_prefix, heliograph._full_id(p_run_id, v_parent));
            v_has_effects := coalesce(v_cause >= p_root
                                      and (v_cause < p_start or v_is_effect[v_cause - p_start]), false);
        end loop;
        v_parent := null;
        if not v_has_effects then
            last := v_commit.seq + v_commit.count - 1;
            continue;
        end if;
        v_entries := v_commit.entries || '[]';
        for v_place in greatest(p_start - v_commit.seq, 0) .. v_commit.count - 1 loop
            v_seq := v_commit.seq + v_place;
            v_entry := v_entries -> v_place;
            v_parent := heliograph._parent_id(p_run_id, v_commit.seq, v_entry);
            v_cause := heliograph._place_within(v_prefix, v_parent);
            if v_seq = p_root then
                v_verdict := true;
            elsif v_cause is null or v_cause < p_root then
                v_verdict := false;
            elsif v_cause >= p_start then
                v_verdict := coalesce(v_is_effect[v_cause - p_start], false);
            else
                v_verdict := v_is_outside_effect[p_start - v_cause];
                if v_verdict is null then
                    select e.verdict, v_steps_left - e.steps into v_verdict, v_steps_left
                      from heliograph._is_effect(p_project, p_run_id, p_root, v_cause, v_steps_left) e;
                    if p_start - v_cause <= v_reads_max then
                        v_is_outside_effect[p_start - v_cause] := v_verdict;
                    end if;
                end if;
                is_too_deep := v_verdict is null and last is null;
                exit log when v_verdict is null;  -- the next call continues here
            end if;
            if v_verdict then
                exit log when cardinality(v_signals) = p_limit;
                v_is_effect[v_seq - p_start] := true;
                v_signals[cardinality(v_signals) + 1] := heliograph._signal_json(
                    p_run_id, v_seq, v_entry, v_parent, heliograph._time_of(
                        v_entry -> 'at', v_place, v_entries #> '{0,at}', v_commit.at), v_commit.agent_turn_id);
            end if;
            last := v_seq;
        end loop;
        v_parent := null;
    end loop;
    signals := to_jsonb(v_signals);
end $$;

-- _place_within: the position that the id of a signal names in the run whose ids begin with p_prefix; null for others.
create function heliograph._place_within(p_prefix text, p_id text) returns bigint
    language plpgsql immutable as $$
declare
    v_rest text;
begin
    if starts_with(p_id, p_prefix) then
        v_rest := substr(p_id, length(p_prefix) + 1);
        if v_rest ~ '^[1-9][0-9]{0,17}$' then
            return v_rest::bigint;
        end if;
    end if;
    return null;
end $$;

-- read_tree: return a signal and its effects, or all signals of a run, after position p_after and in the order of the
--   log: at most p_limit of them, from 1 to 1000. p_subject: the id of a signal or of a run. One call reads at most
--   20,000 signals of the log and the rest of their commit, and looks up at most 50,000 causes of them. The signals of
--   a fork begin with those that it shares. Signals of other runs, to which a turn sent messages, are not among the
--   effects.
--   Returns {outcome: 'ok', subject, run_id, signals, next}; signals: as _signal_json returns them; next: the position
--   after which the next call continues, or null at the end of the log.
--   Or {outcome: 'rejected', code, message}: unknown_signal, pruned_signal, unknown_run, pruned_run; tree_too_deep for
--   a page so far below the signal that its causes take more look-ups.
--   raises: see _enter; 22023 for a limit out of range
create function heliograph.read_tree(p_project text, p_subject text, p_after bigint, p_limit integer) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_rejection constant jsonb := heliograph._reject_subject(p_project, p_subject);
    v_steps_max constant integer := 50000;
    v_run_id text;
    v_root bigint;
    v_newest bigint;
    v_start bigint;
    v_page record;
begin
    if not coalesce(p_limit between 1 and 1000 and p_after >= 0, false) then
        raise exception using errcode = '22023', message = 'p_limit must be from 1 to 1000, and p_after 0 or more';
    elsif v_rejection is not null then
        return v_rejection;
    end if;
    select p.run_id, p.seq into v_run_id, v_root from heliograph._signal_place(p_subject) p;
    v_run_id := coalesce(v_run_id, p_subject);
    select r.signal_seq into v_newest from heliograph.runs r where r.project_id = p_project and r.run_id = v_run_id;
    v_start := least(p_after, v_newest) + 1;
    if v_root is null then
        select coalesce(jsonb_agg(heliograph._signal_json(l.run_id, l.seq, l.entry, l.parent_id, l.at, l.turn_id)
                                  order by l.seq), '[]') as signals, max(l.seq) as last, false as is_too_deep
          into v_page from heliograph._log_from(p_project, v_run_id, v_start, p_limit) l;
    else
        select * into v_page from heliograph._effects_from(
            p_project, v_run_id, v_root, greatest(v_start, v_root), p_limit, v_steps_max);
    end if;
    if v_page.is_too_deep then
        return heliograph._rejection('tree_too_deep', format(
            'the effects of %s after position %s are more than %s commits below it', p_subject, p_after, v_steps_max));
    end if;
    return jsonb_build_object(
        'outcome', 'ok', 'subject', p_subject, 'run_id', v_run_id, 'signals', v_page.signals,
        'next', case when v_page.last < v_newest then v_page.last end);
end $$;

-- _log_from: up to p_limit signals of a run from position p_start on, in order; of a fork, those that it shares, too.
--   run_id: the run that recorded the signal.
create function heliograph._log_from(p_project text, p_run_id text, p_start bigint, p_limit integer)
    returns table (run_id text, seq bigint, commit_seq bigint, entry jsonb, at timestamptz, turn_id text,
                   parent_id text)
    language sql stable as $$
    select p.run_id, s.seq + e.n - 1, s.seq, e.entry, heliograph._time_of(e.entry -> 'at', e.n - 1, t.at, s.at),
           s.agent_turn_id,
           heliograph._parent_id(p.run_id, s.seq, e.entry)
      from heliograph._log_parts(p_project, p_run_id) p
     cross join lateral (select greatest(p_start, p.after + 1) as start offset 0) a
     cross join lateral (  -- the commit with the first signal; if that is pruned, the first commit
           select f.seq, f.count from (
               (select x.seq, x.count from heliograph.signals x
                 where x.project_id = p_project and x.run_id = p.run_id and x.seq <= a.start
                 order by x.seq desc limit 1)
               union all
               (select x.seq, x.count from heliograph.signals x
                 where x.project_id = p_project and x.run_id = p.run_id and x.seq > a.start
                 order by x.seq limit 1)) f
            order by f.seq limit 1) f
     cross join lateral (
           select * from heliograph.signals x
            where x.project_id = p_project and x.run_id = p.run_id
              and x.seq between f.seq and least(p.upto, f.seq + f.count + p_limit)
            order by x.seq limit p_limit) s
     cross join lateral (select s.entries #> '{0,at}' as at offset 0) t  -- once for each commit
     cross join lateral jsonb_array_elements(s.entries) with ordinality e (entry, n)
     where a.start <= p.upto and s.seq + e.n - 1 >= a.start
     order by s.seq, e.n limit p_limit
$$;

-- read_graph: return the causes and the effects of a signal, or the signals of a run, as a graph.
--   Returns {outcome: 'ok', subject, nodes, edges, next}. nodes: [signal], as in why and read_tree; edges: [{from, to,
--   kind}] from a cause to its effect, both among the nodes. kind: 'activation' of an agent, 'message' from another
--   run, 'join' from a signal for which activate_when_all waited, 'signal' otherwise. p_after, p_limit and next: as in
--   read_tree; the causes come with the first page, at most p_limit, and before them the signals of their joins.
--   Or {outcome: 'rejected', code, message}: see read_tree.
--   raises: see read_tree
create function heliograph.read_graph(p_project text, p_subject text, p_after bigint, p_limit integer) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_tree constant jsonb := heliograph.read_tree(p_project, p_subject, p_after, p_limit);
    v_nodes jsonb := v_tree -> 'signals';
    v_edges jsonb;
    v_chain jsonb;
begin
    if v_tree ->> 'outcome' <> 'ok' then
        return v_tree;
    end if;
    if p_after = 0 and exists (select from heliograph._signal_place(p_subject)) then
        v_chain := heliograph.why(p_project, p_subject, p_limit) -> 'chain';
        select coalesce(jsonb_agg(c.link order by c.n desc) filter (where c.n > 1), '[]') || v_nodes into v_nodes
          from jsonb_array_elements(v_chain) with ordinality c (link, n);
        select coalesce(jsonb_agg(m.signal order by m.run_id, m.seq), '[]') || v_nodes into v_nodes
          from (select distinct on (j ->> 'id') j -> 'signal' as signal, j #>> '{signal,run_id}' as run_id,
                       (j #>> '{signal,seq}')::bigint as seq
                  from jsonb_array_elements(v_chain) c
                 cross join lateral jsonb_array_elements(coalesce(c -> 'joined', '[]')) j
                 where j ? 'signal' and j -> 'id' not in (select x -> 'id' from jsonb_array_elements(v_nodes) x)
                 order by j ->> 'id') m;
    end if;
    select coalesce(jsonb_agg(jsonb_build_object(
               'from', n.node #> '{source,parent}', 'to', n.node -> 'id', 'kind', case
                   when n.node ->> 'name' = 'agent:activated' then 'activation'
                   when not starts_with(n.node #>> '{source,parent}', 'sig_' || (n.node ->> 'run_id') || '_')
                    and not exists (select from heliograph._log_parts(p_project, n.node ->> 'run_id') p
                                     where starts_with(n.node #>> '{source,parent}', 'sig_' || p.run_id || '_'))
                   then 'message' else 'signal' end) order by n.place), '[]')
      into v_edges
      from jsonb_array_elements(v_nodes) with ordinality n (node, place)
     where n.node #> '{source,parent}' in (select x -> 'id' from jsonb_array_elements(v_nodes) x);
    select v_edges || coalesce(jsonb_agg(jsonb_build_object('from', j.id, 'to', n.node -> 'id', 'kind', 'join')
                                         order by n.place, j.place), '[]')
      into v_edges
      from jsonb_array_elements(v_nodes) with ordinality n (node, place)
     cross join lateral (
           select j -> 'id' as id, min(p) as place
             from jsonb_array_elements(heliograph._joined_signals(
                      p_project, n.node ->> 'run_id', (n.node ->> 'seq')::bigint, n.node -> 'payload', 100))
                  with ordinality j (j, p)
            where n.node ->> 'name' = 'agent:activated' group by 1) j
     where j.id is distinct from n.node #> '{source,parent}'
       and j.id in (select x -> 'id' from jsonb_array_elements(v_nodes) x);
    return jsonb_build_object('outcome', 'ok', 'subject', p_subject, 'nodes', v_nodes, 'edges', v_edges,
                              'next', v_tree -> 'next');
end $$;
