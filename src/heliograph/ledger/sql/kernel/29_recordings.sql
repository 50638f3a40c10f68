-- Recordings of runs (decision 0078): a commit of a recorded run has, beside its signals, the values from outside that
-- its writer has read since its last one. So a recording needs no row for a turn, and a worker that dies loses nothing
-- that a signal of the log depends on.

-- _recording_problem: null, or the problem of a recording that is not only a text of a usual length.
create function heliograph._recording_problem(p_path text, p_item jsonb) returns text
    language plpgsql immutable as $$
declare
    v_recording jsonb := p_item -> 'recording';
begin
    return coalesce(
        heliograph._wrong_type(p_path, p_item, 'recording', 'object'),
        heliograph._wrong_keys(p_path || '.recording', v_recording, '{body,name,tags}'),
        heliograph._wrong_type(p_path || '.recording', v_recording, 'body', 'string'),
        heliograph._wrong_type(p_path || '.recording', v_recording, 'name', 'string'),
        heliograph._wrong_type(p_path || '.recording', v_recording, 'tags', 'array'),
        case when jsonb_typeof(v_recording -> 'tags') = 'array' then
            case when jsonb_array_length(v_recording -> 'tags') > 50
                   or exists (select from jsonb_array_elements(v_recording -> 'tags') t
                               where jsonb_typeof(t) <> 'string' or octet_length(t #>> '{}') not between 1 and 200)
                 then p_path || '.recording.tags must have at most 50 texts of 1 to 200 bytes' end end,
        case when octet_length(v_recording ->> 'body') > heliograph._recording_bytes_max()
             then format('%s.recording.body has %s bytes; at most %s are allowed: record less, or write signals more '
                         'often', p_path, octet_length(v_recording ->> 'body'), heliograph._recording_bytes_max()) end);
end $$;

-- _wrong_recording: null, or the problem of the recording of an item. name and tags: only in the start of a run; the
--   start of a fork has no body. What recorders send costs no call of a function.
create function heliograph._wrong_recording(p_path text, p_item jsonb) returns text
    language sql immutable as $$
    select case case when jsonb_typeof(p_item #> '{recording,body}') = 'string'
                     then octet_length(p_item #>> '{recording,body}') <= 1000000
                      and (p_item -> 'recording') - 'body' = '{}' end
           when true then null
           else heliograph._recording_problem(p_path, p_item) end
$$;

-- _recording_bytes_max: how much one commit may record.
create function heliograph._recording_bytes_max() returns integer
    language sql immutable as $$
    select 67108864
$$;

-- _check_recorded: reject a column of items with a wrong recording.
--   raises: 22023 naming the field
create function heliograph._check_recorded(p_recordings jsonb[]) returns void
    language plpgsql immutable as $$
declare
    v_recording jsonb;
    v_wrong text;
begin
    foreach v_recording in array p_recordings loop
        if v_recording is not null then
            v_wrong := heliograph._wrong_recording('p_items[]', jsonb_build_object('recording', v_recording));
            if v_wrong is not null then
                raise exception using errcode = '22023', message = v_wrong;
            end if;
        end if;
    end loop;
end $$;

-- _check_recording_texts: reject a column of recordings in which one is too long.
--   raises: 22023 naming the field
create function heliograph._check_recording_texts(p_recordings text[]) returns void
    language plpgsql immutable as $$
declare
    v_recording text;
begin
    foreach v_recording in array p_recordings loop
        if octet_length(v_recording) > heliograph._recording_bytes_max() then
            raise exception using errcode = '22023', message = format(
                'p_items[].recording has %s bytes; at most %s are allowed: record less, or write signals more often',
                octet_length(v_recording), heliograph._recording_bytes_max());
        end if;
    end loop;
end $$;

-- _recording_of: what a commit keeps of the recording of its item, beside its signals: {part, from, call, entries,
--   data} as a text, which only the recorder and replays read (heliograph.execution.packed_commit). Null for an item
--   that is not recorded. A commit without signals keeps nothing.
create function heliograph._recording_of(p_recording jsonb) returns text
    language sql immutable as $$
    select p_recording ->> 'body'
$$;

-- _recording_tags: the tags of the recording of a new run, in order.
create function heliograph._recording_tags(p_tags jsonb) returns text[]
    language plpgsql immutable as $$
begin
    return array(select t from jsonb_array_elements_text(nullif(p_tags, 'null')) t order by t);
end $$;

-- read_recorded: return what the commits of a run have recorded, after position p_after, in order: of a fork, also
--   those of the log that it shares. A page has at most p_limit rows and p_bytes of text, but at least one row.
--   raises: see _enter
create function heliograph.read_recorded(
    p_project text, p_run_id text, p_after bigint, p_limit integer, p_bytes bigint
) returns table (run_id text, seq bigint, count integer, turn_id text, body text)
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    return query select c.run_id, c.seq, c.count, c.turn_id, c.body
      from (select n.*, sum(octet_length(n.body)) over (order by n.seq) as bytes,
                   row_number() over (order by n.seq) as place
              from (select s.run_id, s.seq, s.count::integer, s.agent_turn_id as turn_id, s.recording as body
                      from heliograph._log_parts(v_project, p_run_id) p
                     cross join lateral (
                           select x.* from heliograph.signals x
                            where x.project_id = v_project and x.run_id = p.run_id
                              and x.seq > greatest(p.after, p_after) and x.seq <= p.upto and x.recording is not null
                            order by x.seq limit p_limit) s
                     order by s.seq limit p_limit) n) c
     where c.place = 1 or c.bytes <= p_bytes
     order by c.seq;
end $$;
