-- Copies of a finished run, row for row, under new ids: what many such runs leave behind. Generic, so that no table is forgotten.
create schema history;
create function history.copy_run(p_run_id text, p_copies integer) returns void language plpgsql as $$
declare
    v_table regclass;
    v_key text;
    v_columns text;
    v_fillfactor integer;
    v_turns text[] := array(select agent_turn_id from heliograph.agent_turns where run_id = p_run_id order by queue_seq);
begin
    for v_table in
        select c.oid::regclass from pg_class c
         where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'r'
           and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname in ('run_id', 'agent_turn_id') and a.attnum > 0)
         order by c.relname
    loop
        -- identities are made anew
        select string_agg(quote_ident(a.attname), ', ' order by a.attnum) into v_columns
          from pg_attribute a where a.attrelid = v_table and a.attnum > 0 and not a.attisdropped and a.attidentity = '';
        v_key := case when exists (select from pg_attribute a where a.attrelid = v_table and a.attname = 'run_id' and a.attnum > 0)
                      then 'o.run_id = $1' else 'o.agent_turn_id = any ($3)' end;
        -- Rows that were updated have grown into the room that their page had left for them, so a page of old rows is fuller than the
        -- fillfactor. If it were not, each row of a live run would find room on an old page, which then has to be read and logged.
        v_fillfactor := (select substring(o from '\d+')::integer from pg_class c, unnest(c.reloptions) o
                          where c.oid = v_table and o like 'fillfactor=%');
        if v_fillfactor is not null then
            execute format('alter table %s set (fillfactor = %s)', v_table, v_fillfactor + 15);
        end if;
        execute format(
            -- run after run, as they would have come: small rows lie beside large ones, and fill the pages as they did there
            'insert into %1$s (%2$s) select %3$s from generate_series(1, $2) n'
            ' cross join lateral (select *, row_number() over (order by o.ctid) as place from %1$s o where %4$s) o'
            ' cross join lateral jsonb_populate_record(null::%1$s, history.renamed((to_jsonb(o) - ''place'')::text, n, $1, $3)::jsonb) c'
            ' order by n, o.place',
            v_table, v_columns, (select string_agg('c.' || quote_ident(a.attname), ', ' order by a.attnum)
                                   from pg_attribute a where a.attrelid = v_table and a.attnum > 0 and not a.attisdropped and a.attidentity = ''), v_key)
          using p_run_id, p_copies, v_turns;
        if v_fillfactor is not null then
            execute format('alter table %s set (fillfactor = %s)', v_table, v_fillfactor);
        end if;
    end loop;
end $$;
-- As long as the original: shorter or longer rows would leave holes on every page, which rows of live runs then fill one by one.
create function history.copy_of(p_id text, p_copy integer) returns text language sql immutable as $$
    select left(p_id, -7) || lpad(p_copy::text, 7, '0')
$$;
create function history.renamed(p_row text, p_copy integer, p_run_id text, p_turns text[]) returns text language plpgsql immutable as $$
declare
    v_row text := replace(p_row, p_run_id, history.copy_of(p_run_id, p_copy));
    v_turn text;
begin
    foreach v_turn in array p_turns loop
        v_row := replace(v_row, v_turn, history.copy_of(v_turn, p_copy));
    end loop;
    return v_row;
end $$;
