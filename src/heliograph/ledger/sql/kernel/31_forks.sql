-- Forks of runs: the checks of start_runs for a run that continues the log of another one (decision 0072).

-- _wrong_fork: null, or the problem of the fork {run_id, seq, activations, turns: [{turn_id, origin}], repeats_failed}
--   of a run to be started.
create function heliograph._wrong_fork(p_path text, p_fork jsonb) returns text
    language sql immutable as $$
    select case when jsonb_typeof(p_fork) = 'object' then coalesce(
        heliograph._wrong_keys(p_path, p_fork, '{run_id,seq,activations,turns,repeats_failed}'),
        heliograph._wrong_type(p_path, p_fork, 'turns', 'array'),
        heliograph._wrong_type(p_path, p_fork, 'repeats_failed', 'boolean'),
        (select min(heliograph._wrong_keys(p_path || '.turns[]', t, '{turn_id,origin}'))
           from jsonb_array_elements(case jsonb_typeof(p_fork -> 'turns') when 'array' then p_fork -> 'turns' end) t),
        case when not coalesce(jsonb_typeof(p_fork -> 'run_id') = 'string', false)
             then p_path || '.run_id is the id of the run that is forked'
             when not coalesce(p_fork ->> 'seq' ~ '^[1-9][0-9]{0,17}$', false)
             then p_path || '.seq is the position of a signal of that run'
             when not coalesce(p_fork ->> 'activations' ~ '^[0-9]{1,9}$', p_fork ->> 'activations' is null)
             then p_path || '.activations is the number of turns that were activated up to that signal' end) end
$$;

-- _with_origins: the runs of start_runs; each fork has in addition owner, the run that recorded its last shared signal,
--   and rejection if it cannot be made. A turn of a fork whose cause is {"seq": n} has cause_run_id, the run that
--   recorded that signal.
--   locks:  the owners in ascending id, then the turns that start again, against prune
create function heliograph._with_origins(p_project text, p_runs heliograph.new_run[]) returns heliograph.new_run[]
    language plpgsql as $$
declare
    v_owners constant text[] := array(
        select heliograph._owner_at(p_project, r.fork ->> 'run_id', (r.fork ->> 'seq')::bigint) from unnest(p_runs) r);
begin
    perform from heliograph.runs
      where project_id = p_project and run_id = any (v_owners) order by run_id for key share;
    perform from heliograph.agent_turns
      where project_id = p_project
        and agent_turn_id = any (array(select t ->> 'origin' from unnest(p_runs) r
                                        cross join lateral jsonb_path_query(r.fork, '$.turns[*]') t))
      order by agent_turn_id for key share;
    -- checked by a later statement, which sees what the holders of the locks have committed
    return array(
        select (r.place, r.run_id, r.target, r.request_hash, r.agents, r.wakes_on_results, r.callback_url, r.signals,
                heliograph._with_causes(p_project, r.fork, r.reaction), f.fork || jsonb_build_object(
                    'rejection', heliograph._reject_fork(p_project, f.fork)), r.recording)::heliograph.new_run
          from rows from (unnest(v_owners), unnest(p_runs)) r (owner)
         cross join lateral (select r.fork || jsonb_build_object('owner', r.owner) as fork) f);
end $$;

-- _reject_fork: null, or the rejection of a fork {run_id, seq, owner, turns}: unknown_run, unknown_signal,
--   pruned_signal, inside_commit if the signal was recorded together with later ones, run_ended if the run ends with
--   it, or unknown_turn if a turn that starts again was not activated by then.
--   The caller holds the owner.
create function heliograph._reject_fork(p_project text, p_fork jsonb) returns jsonb
    language plpgsql stable as $$
declare
    v_run_id constant text := p_fork ->> 'run_id';
    v_seq constant bigint := p_fork ->> 'seq';
    v_run heliograph.runs;
    v_pruned bigint;
    v_commit heliograph.signals;
    v_foreign text;
begin
    select * into v_run from heliograph.runs where project_id = p_project and run_id = v_run_id;
    if v_run.run_id is null then
        return heliograph._rejection('unknown_run', format('there is no run %s to fork: name another run',
                                                           left(v_run_id, 200)));
    elsif v_seq > v_run.signal_seq then
        return heliograph._rejection('unknown_signal', format(
            'run %s has %s signals so far, and no signal %s: fork it at one that it has', v_run_id, v_run.signal_seq,
            v_seq));
    end if;
    select max(r.pruned_seq - p.after) into v_pruned
      from heliograph._log_parts(p_project, v_run_id) p
      join heliograph.runs r on r.project_id = p_project and r.run_id = p.run_id;
    if v_pruned > 0 then
        return heliograph._rejection('pruned_signal', format(
            'the first signals of run %s are pruned, and a fork needs all signals up to %s: start a new run instead',
            v_run_id, v_seq));
    end if;
    select * into v_commit from heliograph.signals
     where project_id = p_project and run_id = p_fork ->> 'owner' and seq <= v_seq order by seq desc limit 1;
    if v_commit.seq + v_commit.count - 1 <> v_seq then
        return heliograph._rejection('inside_commit', format(
            'signal %s of run %s was recorded together with those up to %s: fork the run at %s', v_seq, v_run_id,
            v_commit.seq + v_commit.count - 1, v_commit.seq + v_commit.count - 1));
    elsif v_commit.entries @> '[{"name": "workflow:end"}]' then
        return heliograph._rejection('run_ended', format(
            'run %s ended with signal %s, so nothing is left to do after it: fork the run at an earlier signal',
            v_run_id, v_seq));
    end if;
    select t.origin into v_foreign
      from jsonb_to_recordset(coalesce(nullif(p_fork -> 'turns', 'null'), '[]')) t (origin text)
     where not exists (select from heliograph.agent_turns o
                        where o.project_id = p_project and o.agent_turn_id = t.origin
                          and o.run_id = p_fork ->> 'owner' and o.activation_seq <= v_seq)
     order by t.origin limit 1;
    if found then
        return heliograph._rejection('unknown_turn', format(
            'run %s activated no turn %s up to signal %s, or the turn is pruned: fork the run at a later signal',
            v_run_id, coalesce(left(v_foreign, 200), 'null'), v_seq));
    end if;
    return null;
end $$;

-- _with_causes: the reaction of a run. Each of its activations has cause_run_id: of a fork's turn with a cause {seq},
--   the run that recorded that signal.
create function heliograph._with_causes(p_project text, p_fork jsonb, p_reaction jsonb) returns jsonb
    language sql stable as $$
    select case when p_fork is null or jsonb_typeof(p_reaction -> 'activations') is distinct from 'array'
        then p_reaction else p_reaction || jsonb_build_object('activations', (
            select coalesce(jsonb_agg(
                       case when jsonb_typeof(a.item -> 'cause') = 'object' and (a.item #>> '{cause,seq}')::bigint
                                 <= (p_fork ->> 'seq')::bigint
                            then a.item || jsonb_build_object('cause_run_id', heliograph._owner_at(
                                p_project, p_fork ->> 'run_id', (a.item #>> '{cause,seq}')::bigint))
                            else a.item end order by a.n), '[]')
              from jsonb_array_elements(p_reaction -> 'activations') with ordinality a (item, n))) end
$$;
