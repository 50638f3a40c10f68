-- What a fork shares: the log of a run up to one of its commits, from the nearest checkpoint on (decision 0082).

-- read_shared_log: the last checkpoint of a run's log before the end of the commit with position p_seq, and the entries
--   from there to that end that a fork needs, in order: of the runtime's own names, pending ones, and those with one of
--   the names p_names; null: all. p_after: null, or `next` of the answer before.
--   Returns {run_id, seq, commit_seq, recorded_at, checkpoint, entries, next}: the run that recorded the commit, its
--   last and first position and its time. checkpoint: {run_id, seq, state, memory, activations, in_progress}, or null.
--   entries: [[run_id, commit_seq, index, entry]], those of the turns in progress at the checkpoint first. next: the
--   position after which the next call continues, or null at the end. A page has at most 5,000 commits and 4 MB as they
--   are stored, but at least one commit. Null for a position that the log does not have.
--   raises: see _enter
create function heliograph.read_shared_log(
    p_project text, p_run_id text, p_seq bigint, p_names text[], p_after bigint
) returns json language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_owner constant text := heliograph._owner_at(p_project, p_run_id, p_seq);
    v_commit heliograph.signals;
    v_last bigint;
    v_from heliograph.run_checkpoints;
    v_start bigint;  -- the page begins after it
    v_upto bigint;
begin
    select * into v_commit from heliograph.signals s
     where s.project_id = p_project and s.run_id = v_owner and s.seq <= p_seq order by s.seq desc limit 1;
    v_last := v_commit.seq + v_commit.count - 1;
    if not coalesce(p_seq between 1 and v_last, false) then
        return null;
    end if;
    if p_after is null then
        select c.* into v_from from heliograph._log_parts(p_project, p_run_id) p
         cross join lateral (
               select * from heliograph.run_checkpoints x
                where x.project_id = p_project and x.run_id = p.run_id and x.seq > p.after
                  and x.seq <= least(p.upto, v_last) order by x.seq desc limit 1) c
         order by c.seq desc limit 1;
    end if;
    -- not below: under row security no index finds rows by a condition with a coalesce
    v_start := coalesce(p_after, v_from.seq, 0);
    select coalesce(max(b.upto), v_last) into v_upto from (
        select c.upto, row_number() over (order by c.upto) as place, sum(c.bytes) over (order by c.upto) as bytes
          from heliograph._log_parts(p_project, p_run_id) p
         cross join lateral (
               select x.seq + x.count - 1 as upto, pg_column_size(x.entries) as bytes from heliograph.signals x
                where x.project_id = p_project and x.run_id = p.run_id
                  and x.seq > greatest(p.after, v_start) and x.seq <= least(p.upto, v_last)
                order by x.seq limit 5000) c
         order by c.upto limit 5000) b
     where b.place = 1 or b.bytes <= 4194304;
    return json_build_object(
        'run_id', v_owner, 'seq', v_last, 'commit_seq', v_commit.seq, 'recorded_at', v_commit.at,
        'next', case when v_upto < v_last then v_upto end,
        'checkpoint', case when v_from.seq is not null then json_build_object(
            'run_id', v_from.run_id, 'seq', v_from.seq, 'state', v_from.state, 'activations', v_from.activations,
            'in_progress', v_from.in_progress, 'memory', v_from.memory) end,
        'entries', coalesce((
            select json_agg(json_build_array(l.run_id, l.seq, l.n, l.entry) order by l.seq, l.n)
              from (select s.run_id, s.seq, t.at - s.seq as n, s.entries -> (t.at - s.seq)::integer as entry
                      from unnest(v_from.in_progress) t (at)
                     cross join lateral (
                           select x.run_id, x.seq, x.entries from heliograph.signals x
                            where x.project_id = p_project and x.run_id = v_from.run_id and x.seq <= t.at
                            order by x.seq desc limit 1) s
                     where t.at - s.seq < jsonb_array_length(s.entries)
                    union all
                    select s.run_id, s.seq, e.n - 1, e.entry
                      from heliograph._log_parts(p_project, p_run_id) p
                     cross join lateral (
                           select x.run_id, x.seq, x.entries from heliograph.signals x
                            where x.project_id = p_project and x.run_id = p.run_id
                              and x.seq > greatest(p.after, v_start)
                              and x.seq <= least(p.upto, v_upto) order by x.seq offset 0) s
                     cross join lateral jsonb_array_elements(s.entries) with ordinality e (entry, n)
                     where p_names is null or e.entry ->> 'name' ^@ any (array['agent:', 'state:', 'workflow:'])
                        or e.entry ->> 'name' = any (p_names) or e.entry -> 'is_pending' = 'true') l), '[]'));
end $$;

-- first_failure: the first position of the commit in which the first turn of a run failed; null if none did.
--   raises: see _enter
create function heliograph.first_failure(p_project text, p_run_id text) returns json
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_part record;
    v_seq bigint;
begin
    for v_part in select p.* from heliograph._log_parts(p_project, p_run_id) p order by p.after loop
        select s.seq into v_seq from heliograph.signals s
         where s.project_id = p_project and s.run_id = v_part.run_id and s.seq <= v_part.upto
           and s.seq > greatest(v_part.after, (
               select max(c.seq) from heliograph.run_checkpoints c
                where c.project_id = p_project and c.run_id = v_part.run_id and not c.memory ? 'failed'))
           and exists (select from jsonb_array_elements(s.entries) e
                        where e ->> 'name' = 'agent:failed'
                          and coalesce(e #>> '{payload,outcome}', 'failed') not in ('success', 'partial', 'canceled'))
         order by s.seq limit 1;
        exit when found;
    end loop;
    return to_json(v_seq);
end $$;
