-- Pruning of circuit breakers and rate limits: targets that nobody has called for a long time.

-- _prune_targets: delete the failures, the circuit breakers and the buckets that nobody has needed for 30 days before
--   p_before. A breaker without a row is closed, and a bucket without a row is full. Answers {breakers, rates};
--   breakers counts the rows of calls too.
--   locks:  the calls, the breakers and the buckets, skipping rows that another transaction has locked; half-open
--           breakers, without waiting
create function heliograph._prune_targets(p_project text, p_before timestamptz, p_limit integer) returns jsonb
    language plpgsql as $$
declare
    v_before constant timestamptz := p_before - interval '30 days';
    v_calls integer;
    v_breakers integer;
    v_rates integer;
    v_oldest tid[];
begin
    delete from heliograph.circuit_calls c using (
           select x.ctid as at from heliograph.circuit_calls x
             left join heliograph.circuit_breakers b
               on b.project_id = p_project and b.type = x.type and b.target = x.target
            where x.project_id = p_project and x.ended_at < v_before and b.state is distinct from 'half_open'
            order by x.ended_at, x.position limit p_limit for update of x skip locked) old
     where c.ctid = old.at;
    get diagnostics v_calls = row_count;
    -- a failure that is recorded now locks its breaker: see _count_circuits
    v_oldest := array(
        select b.ctid from heliograph.circuit_breakers b
         where b.project_id = p_project and b.changed_at < v_before
         order by b.changed_at, b.type, b.target limit 10 * p_limit);
    delete from heliograph.circuit_breakers b using (
           select x.ctid as at from heliograph.circuit_breakers x
            where x.ctid = any (v_oldest) and x.project_id = p_project and x.state <> 'half_open'
              and x.changed_at < v_before and coalesce(x.open_until < v_before, true)
              and not exists (select from heliograph.circuit_calls c
                               where c.project_id = p_project and c.type = x.type and c.target = x.target)
            order by x.changed_at, x.type, x.target limit p_limit for update skip locked) old
     where b.ctid = old.at;
    get diagnostics v_breakers = row_count;
    v_breakers := v_breakers + heliograph._prune_half_open(p_project, v_oldest, v_before, p_limit);
    delete from heliograph.rate_buckets b using (
           select x.ctid as at from heliograph.rate_buckets x
            where x.project_id = p_project
              and x.last_day < heliograph._nanoseconds(v_before) / 86400000000000
              and x.full_at < heliograph._nanoseconds(v_before)
            order by x.last_day, x.kind, x.name limit p_limit for update skip locked) old
     where b.ctid = old.at;
    get diagnostics v_rates = row_count;
    return jsonb_build_object('breakers', v_calls + v_breakers, 'rates', v_rates);
end $$;

-- _prune_half_open: delete those of the breakers p_oldest that are half open and whose trials all ended, or were lost,
--   before p_before, with the rows of these trials. Returns the number of rows. A breaker whose lock is taken remains:
--   an admission that is not committed yet holds it, and its trial would later count in a new state with the same
--   generation. A breaker with a locked row of a trial remains too: a result that is not committed yet has locked it.
--   locks:  the breakers, without waiting; their rows and calls, skipping those that another transaction has locked
create function heliograph._prune_half_open(p_project text, p_oldest tid[], p_before timestamptz, p_limit integer)
    returns integer language plpgsql as $$
declare
    v_each record;
    v_calls tid[];
    v_rows integer := 0;
begin
    for v_each in
        select b.type, b.target from heliograph.circuit_breakers b
         where b.ctid = any (p_oldest) and b.project_id = p_project and b.state = 'half_open'
         order by b.changed_at, b.type, b.target limit p_limit
    loop
        continue when not pg_try_advisory_xact_lock(heliograph._circuit_lock(p_project, to_jsonb(v_each)));
        v_calls := array(
            select c.ctid from heliograph.circuit_calls c
             where c.project_id = p_project and c.type = v_each.type and c.target = v_each.target
               and coalesce(c.ended_at, c.expires_at) < p_before
             order by c.generation, c.position for update skip locked);
        delete from heliograph.circuit_breakers b using (
               select x.ctid as at from heliograph.circuit_breakers x
                where x.project_id = p_project and x.type = v_each.type and x.target = v_each.target
                  and x.state = 'half_open' and x.changed_at < p_before
                  and cardinality(v_calls) = (select count(*) from heliograph.circuit_calls c
                                               where c.project_id = p_project and c.type = v_each.type
                                                 and c.target = v_each.target)
                order by x.type, x.target for update skip locked) old
         where b.ctid = old.at;
        continue when not found;
        delete from heliograph.circuit_calls c where c.ctid = any (v_calls) and c.project_id = p_project;
        v_rows := v_rows + 1 + cardinality(v_calls);
    end loop;
    return v_rows;
end $$;
