-- Plans are pinned. Every statement of the kernel finds its rows by an index, a few at a time, however long the
-- history is. The planner has no information about that: it expects a hundred items in an array of one, hashes a table
-- that is small today, keeps that plan when the table has grown, and plans again on each call. Measured on one turn:
-- finish 2.8 ms as planned, 0.6 ms as pinned. Only doctor, which reads everything, has settings of its own.
do $$
declare
    v_function regprocedure;
begin
    for v_function in
        select p.oid from pg_proc p join pg_language l on l.oid = p.prolang
         where p.pronamespace = 'heliograph'::regnamespace and l.lanname = 'plpgsql' and p.proname not like '\_%'
           and p.proname <> 'doctor'
         order by p.oid
    loop  -- in one statement: each one writes the source of the function again
        execute format('alter function %s set plan_cache_mode = force_generic_plan set enable_seqscan = off '
                       'set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off '
                       'set enable_material = off set enable_memoize = off', v_function);
    end loop;
end $$;
