-- The columns that a turn changes stand at the end of their rows, next to each other (decision 0163). PostgreSQL logs an update within a page
-- from the first byte that changed to the last one, with all columns in between.

-- Copy the columns to the end in one pass over each table. Everything that names a column is created again: its default, the
-- indexes and the constraints.
do $$
declare
    v_table record;
    v_again text[];
    v_each text;
begin
    for v_table in
        select m.relation, m.columns,
               array_agg(format('add column %I %s%s generated always as (%I) stored', 'moved_' || a.attname,
                                format_type(a.atttypid, a.atttypmod), ' collate ' || nullif(a.attcollation, 0)::regcollation,
                                a.attname) order by c.n) as copies,
               array_agg(format('alter column %I drop expression', 'moved_' || a.attname) order by c.n) as frees,
               array_agg(format('drop column %I', a.attname) order by c.n) as drops,
               array_agg(format('alter table %s rename column %I to %I', m.relation, 'moved_' || a.attname, a.attname)
                         order by c.n) as names,
               array_agg(format('alter column %I set not null', a.attname) order by c.n) filter (where a.attnotnull)
               || array_agg(format('alter column %I set default %s', a.attname, pg_get_expr(d.adbin, d.adrelid)) order by c.n)
                  filter (where d.adbin is not null) as rest
          from (values
                (1, 'heliograph.runs'::regclass,
                 '{state,version,signal_seq,updated_at,ended_at,open_turns,pending_reactions,activations,status,outcome,memory}'::text[]),
                (2, 'heliograph.agent_state_head',
                 '{ready_at,active_agent_turn_id,turn_epoch,moved_at,lease_until,resume_deadline,waiting_tool_count,status,phase,owner,'
                 'resumes_on}'),
                (3, 'heliograph.agent_turns', '{finished_at,card_count,state,outcome,deliverable_card_id}'),
                (4, 'heliograph.agent_inbox', '{turn_epoch,status,consumed_at}'),
                (5, 'heliograph.turn_waiting_tools', '{resolved_at,resolved_position,state,status,result_card_id}')
               ) m (place, relation, columns)
         cross join unnest(m.columns) with ordinality c (name, n)
          join pg_attribute a on a.attrelid = m.relation and a.attname = c.name and not a.attisdropped
          left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
         group by m.place, m.relation, m.columns order by m.place
    loop
        v_again := array(
            select pg_get_indexdef(i.indexrelid) from pg_index i
             where i.indrelid = v_table.relation and exists (
                   select from pg_depend p
                     join pg_attribute a on a.attrelid = p.refobjid and a.attnum = p.refobjsubid
                    where p.classid = 'pg_class'::regclass and p.objid = i.indexrelid and p.refobjid = i.indrelid
                      and a.attname = any (v_table.columns))
             order by i.indexrelid)
            || array(
            select format('alter table %s add constraint %I %s', c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid))
              from pg_constraint c
             where c.conrelid = v_table.relation and c.contype = 'c' and exists (
                   select from pg_attribute a where a.attrelid = c.conrelid and a.attnum = any (c.conkey)
                      and a.attname = any (v_table.columns))
             order by c.oid);
        execute format('alter table %s %s', v_table.relation, array_to_string(v_table.copies, ', '));
        execute format('alter table %s %s', v_table.relation, array_to_string(v_table.frees, ', '));
        execute format('alter table %s %s', v_table.relation, array_to_string(v_table.drops, ', '));
        foreach v_each in array v_table.names loop
            execute format('%s', v_each);
        end loop;
        if v_table.rest <> '{}' then
            execute format('alter table %s %s', v_table.relation, array_to_string(v_table.rest, ', '));
        end if;
        foreach v_each in array v_again loop
            execute format('%s', v_each);
        end loop;
    end loop;
end $$;

-- What the planner is to believe about these columns: see 0002_planner.sql.
do $$
declare
    v_at timestamptz := '2000-01-01';
begin
    if exists (select from heliograph.runs) or exists (select from heliograph.agent_state_head)
       or exists (select from heliograph.agent_turns) or exists (select from heliograph.agent_inbox)
       or exists (select from heliograph.turn_waiting_tools) then
        analyze heliograph.runs, heliograph.agent_state_head, heliograph.agent_turns, heliograph.agent_inbox,
                heliograph.turn_waiting_tools;
        return;  -- real data says more than these rows could
    end if;
    insert into heliograph.runs (project_id, run_id, target, status, outcome, request_hash, state, memory, pending_reactions,
                                 created_at, updated_at, ended_at)
    select 'planner', 'run_' || n, 'target', case when n > 20 then 'ended' else 'running' end,
           case when n > 20 then 'success' end, 'hash', '{}', '{}', case when n > 2 then 0 else 1 end,
           v_at + n * interval '1 s', v_at + n * interval '1 s', case when n > 20 then v_at + n * interval '1 s' end
      from generate_series(1, 1000) n;
    insert into heliograph.agent_state_head (project_id, agent_id, run_id, agent_name, target, status,
                                             active_agent_turn_id, ready_at, owner, lease_until, moved_at)
    select 'planner', 'run_' || n || '/agent', 'run_' || n, 'agent', 'target',
           case when n > 20 then 'idle' when n > 10 then 'dispatched' else 'running' end,
           case when n <= 20 then 'turn_' || n end, case when n <= 20 then v_at + n * interval '1 s' end,
           case when n <= 10 then 'worker' end, case when n <= 10 then v_at + n * interval '1 s' end, v_at
      from generate_series(1, 1000) n;
    insert into heliograph.agent_turns (project_id, agent_turn_id, agent_id, run_id, state, outcome, max_attempts,
                                        cause_seq, activation_seq, output_box_id, deliverable_card_id, created_at,
                                        expires_at, finished_at)
    select 'planner', 'turn_' || n, 'run_' || n || '/agent', 'run_' || n,
           case when n > 30 then 'done' when n > 20 then 'queued' else 'active' end,
           case when n > 30 then 'success' end, 5, 1, 2, 'box_' || n, case when n > 30 then 'card_' || n end,
           v_at + n * interval '1 s', v_at + n * interval '1 h', case when n > 30 then v_at + n * interval '1 s' end
      from generate_series(1, 1000) n;
    insert into heliograph.agent_inbox (project_id, agent_id, agent_turn_id, message_type, status, correlation_id,
                                        next_retry_at, created_at)
    select 'planner', 'run_' || n || '/agent', 'turn_' || n, 'turn',
           case when n > 30 then 'consumed' when n > 20 then 'queued' when n > 10 then 'pending' else 'processing' end,
           'sig_' || n, v_at + n * interval '1 s', v_at
      from generate_series(1, 1000) n;
    insert into heliograph.turn_waiting_tools (project_id, agent_turn_id, tool_call_id, agent_id, run_id, tool, kind,
                                               state, epoch, deadline, status, resolved_position, opened_at, resolved_at)
    select 'planner', 'turn_' || n, 'c1', 'run_' || n || '/agent', 'run_' || n, 'tool', 'tool',
           case when n > 50 then 'resolved' else 'open' end, 2, v_at + n * interval '1 s',
           case when n > 50 then 'success' end, case when n > 50 then 1 end, v_at, case when n > 50 then v_at end
      from generate_series(5, 1000, 5) n;
    analyze heliograph.runs, heliograph.agent_state_head, heliograph.agent_turns, heliograph.agent_inbox,
            heliograph.turn_waiting_tools;
    begin  -- a savepoint: the planner takes a table for empty if it is truncated where it was written again (install.py)
        truncate heliograph.runs, heliograph.agent_state_head, heliograph.agent_turns, heliograph.agent_inbox,
                 heliograph.turn_waiting_tools restart identity;
    exception when others then
        raise;
    end;
end $$;
