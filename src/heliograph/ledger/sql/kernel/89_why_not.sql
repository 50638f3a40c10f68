-- What the ledger records about an agent that did not run: which signals its run has, and why the agent was skipped.

-- why_not: return what a part of a run's log and the run itself record about the activations of an agent.
--   The part: the signals after position p_after, of a fork those that it shares, too; at most p_limit, up to 100000.
--   Clients join the answers of all parts; only names, skips, activations and terminating differ between them.
--   Returns {outcome: 'ok', run_id, agent, status, is_agent, pending_reactions, stopped_by, code, joins, activations,
--   skips: {count, last}, names: [{name, count, last}], terminating, next}. is_agent: the run has the agent. joins: the
--   indexes of the patterns of activate_when_all that have matched since the agent's last activation. skips.last: the
--   newest ten, [{id, name, cause, reason, guard}]: the signal that did not activate it. names: up to a thousand names
--   of signals of the part, each with the id of the last. terminating: the id of workflow:terminating. next: the
--   position after which the next part begins, or null.
--   Or {outcome: 'rejected', code, message}: unknown_run, pruned_run.
--   raises: see _enter; 22023 for a limit out of range
create function heliograph.why_not(p_project text, p_run_id text, p_agent text, p_after bigint, p_limit integer)
    returns jsonb language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_run heliograph.runs;
    v_part jsonb;
begin
    if not coalesce(p_limit between 1 and 100000 and p_after >= 0, false) then
        raise exception using errcode = '22023', message = 'p_limit must be from 1 to 100000, and p_after 0 or more';
    end if;
    select * into v_run from heliograph.runs r where r.project_id = p_project and r.run_id = p_run_id;
    if v_run.run_id is null then
        return heliograph._reject_subject(p_project, p_run_id);
    end if;
    with part as materialized (
        select l.run_id, l.seq, l.parent_id, l.entry, l.entry ->> 'name' as name, l.entry ->> 'agent' as agent
          from heliograph._log_from(p_project, p_run_id, p_after + 1, p_limit) l
    ), owner as materialized (
        select * from heliograph._log_parts(p_project, p_run_id)
    ), named as (
        select p.name, count(*) as count, max(p.seq) as last from part p group by p.name order by p.name limit 1000
    ), skip as (
        select p.run_id, p.seq, p.parent_id, p.entry -> 'payload' as payload from part p
         where p.name = 'agent:skipped' and p.agent = p_agent order by p.seq desc limit 10
    )
    select jsonb_build_object(
               'names', (select coalesce(jsonb_agg(jsonb_build_object(
                                    'name', n.name, 'count', n.count, 'last',
                                    heliograph._signal_id(o.run_id, n.last)) order by n.name), '[]')
                           from named n join owner o on n.last > o.after and n.last <= o.upto),
               'activations', (select count(*) from part p where p.name = 'agent:activated' and p.agent = p_agent),
               'skips', jsonb_build_object(
                   'count', (select count(*) from part p where p.name = 'agent:skipped' and p.agent = p_agent),
                   'last', (select coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                                       'id', heliograph._signal_id(s.run_id, s.seq), 'cause', s.parent_id,
                                       'name', c.entry -> 'name', 'reason', s.payload -> 'reason',
                                       'guard', s.payload -> 'guard')) order by s.seq), '[]')
                              from skip s
                              left join lateral heliograph._signal_place(s.parent_id) o on true
                              left join lateral heliograph._found_signal(p_project, o.run_id, o.seq) c on true)),
               'terminating', (select heliograph._signal_id(p.run_id, p.seq) from part p
                                where p.name = 'workflow:terminating' order by p.seq limit 1),
               'next', (select case when max(p.seq) < v_run.signal_seq then max(p.seq) end from part p))
      into v_part;
    return v_part || jsonb_build_object(
        'outcome', 'ok', 'run_id', p_run_id, 'agent', p_agent, 'status', v_run.status,
        'is_agent', exists (select from heliograph.agent_state_head h
                             where h.project_id = p_project and h.agent_id = p_run_id || '/' || p_agent),
        'pending_reactions', v_run.pending_reactions,
        'stopped_by', coalesce(v_run.memory ->> 'stopped_by', v_run.stop_reason), 'code', v_run.memory ->> 'code',
        'joins', coalesce(v_run.memory #> array['joins', p_agent], '[]'));
end $$;
