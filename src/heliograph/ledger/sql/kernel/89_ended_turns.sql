-- The ended turns of a run, for a recording of a run that nobody recorded.

-- read_ended_turns: read a page of the ended turns of a run, in the order in which they were activated; not those of
--   the run from which it was forked. p_after: the position of the activation after which the page begins; 0 for the
--   first page.
--   Returns {turns: [{claimed, outcome, content}], memory, next}. claimed: what claim returns, with the results of all
--   calls, and without the state and the memory of the run. content: of the deliverable. memory: of the run, as it is
--   now. next: the position of the last activation of the page, or null.
--   A page of one turn that does not fit into 256 MB names it: {problem, claimed: {run_id, turn_id, agent}}.
--   raises: see _enter; 22023 for a limit out of range; 54000 for several turns that do not fit into 256 MB
create function heliograph.read_ended_turns(
    p_project text, p_run_id text, p_after bigint, p_limit integer, p_now timestamptz
) returns json language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_turns json;
    v_last bigint;
    v_count integer;
begin
    if not coalesce(p_limit between 1 and 1000 and p_after >= 0, false) then
        raise exception using errcode = '22023', message = 'p_limit must be from 1 to 1000, and p_after 0 or more';
    end if;
    begin  -- a savepoint: the results of one turn may be too large to be read
        select json_agg(json_build_object(
                   'claimed', heliograph._turn_view(
                       t, h, json_build_object(
                           'run_id', r.run_id, 'status', r.status, 'version', r.version, 'state', '{}'::json,
                           'memory', '{}'::json, 'open_turns', 0, 'pending_reactions', 0, 'activations', 0),
                       cause.signal, w.waits,
                       case when t.budgets is not null then heliograph._remaining(p_project, t.budgets) end, p_now),
                   'outcome', t.outcome,
                   'content', coalesce(b.content, c.content)) order by t.activation_seq),
               max(t.activation_seq), count(*)
          into v_turns, v_last, v_count
          from (select x.* from heliograph.agent_turns x
                 where x.project_id = p_project and x.run_id = p_run_id and x.activation_seq > p_after
                   and x.state = 'done'
                 order by x.activation_seq limit p_limit) t
         cross join lateral (select * from heliograph.agent_state_head x
                              where x.project_id = p_project and x.agent_id = t.agent_id offset 0) h
         cross join lateral (select * from heliograph.runs x
                              where x.project_id = p_project and x.run_id = t.run_id offset 0) r
         cross join lateral heliograph._waits(p_project, t.agent_turn_id) w
          left join lateral heliograph._signal_of_run(p_project, t.run_id, r.forked_seq, t.cause_seq) cause on true
          left join lateral (
               select x.content from heliograph.cards x
                where x.project_id = p_project and x.card_id = heliograph._deliverable_id(t.agent_turn_id)
               offset 0) c on true
          left join lateral (
               select x.content from heliograph.blobs x
                where x.project_id = p_project and x.blob_id = c.content ->> '$blob' offset 0) b on true;
        if octet_length(v_turns::text) > 268435455 then
            raise exception using errcode = '54000', message = 'the ended turns have over 256 MB of JSON';
        end if;
    exception when program_limit_exceeded then
        if p_limit > 1 then
            raise;
        end if;
        select heliograph._unreadable_turn(p_project, 'it has over 256 MB of JSON', t.agent_turn_id),
               t.activation_seq, 1
          into v_turns, v_last, v_count
          from heliograph.agent_turns t
         where t.project_id = p_project and t.run_id = p_run_id and t.activation_seq > p_after and t.state = 'done'
         order by t.activation_seq limit 1;
    end;
    return json_build_object(
        'turns', coalesce(v_turns, '[]'), 'next', case when v_count = p_limit then v_last end,
        'memory', (select r.memory from heliograph.runs r where r.project_id = p_project and r.run_id = p_run_id));
end $$;
