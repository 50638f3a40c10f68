-- Pruning of circuit breakers and rate limits: targets that nobody has called for a long time.

-- _prune_targets: delete the failures, the circuit breakers and the buckets that nobody has needed for 30 days before
--   p_before. A breaker without a row is closed, and a bucket without a row is full. A breaker that is half open
--   remains: an admission that is not committed yet locks no row of it, and its trial would later count in a new state
--   with the same generation. Answers {breakers, rates}; breakers counts failures too.
--   locks:  the calls, the breakers and the buckets, skipping rows that another transaction has locked
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
