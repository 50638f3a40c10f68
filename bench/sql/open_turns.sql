-- Copies of the only run of a project with all its turns: a copy has the ids of the run, with a number at their ends.
create function pg_temp.copy_run(p_project text, p_run_id text, p_count integer) returns void language plpgsql as $$
declare
    v_table text;
begin
    perform set_config('heliograph.project', p_project, true), set_config('session_replication_role', 'replica', true);
    foreach v_table in array array['runs', 'agent_state_head', 'agent_turns', 'agent_inbox', 'leases', 'turn_waiting_tools', 'cards',
                                   'signals'] loop
        execute format(
            'insert into heliograph.%1$I overriding system value
             select copy.* from heliograph.%1$I t cross join generate_series(1, $3) n
              cross join lateral jsonb_populate_record(null::heliograph.%1$I, replace(regexp_replace(
                        to_jsonb(t)::text, ''turn_[0-9a-z]{21}'', ''\&_'' || n, ''g''), $2, $2 || ''_'' || n)::jsonb) copy
              where t.project_id = $1', v_table)
            using p_project, p_run_id, p_count;
    end loop;
end $$;
