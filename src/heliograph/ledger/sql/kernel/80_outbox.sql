-- The outbox: task events on their way to the wire, at least once, each with the key of its row (G-61).

-- read_outbox: the oldest unpublished rows: [{outbox_id, key, subject, body}].
--   raises: nothing
--   locks:  nothing: two relays may publish the same row, the key tells the copies apart
create function heliograph.read_outbox(p_project text, p_limit integer) returns jsonb
    language sql stable set search_path = pg_catalog as $$
    select coalesce(jsonb_agg(jsonb_build_object('outbox_id', outbox_id, 'key', key, 'subject', subject, 'body', body)
                              order by outbox_id), '[]')
      from (select * from heliograph.outbox where project_id = p_project and published_at is null
             order by outbox_id limit p_limit) o
$$;

-- mark_published: these rows are on the wire. p_ids: [outbox_id]. A second call changes nothing.
--   raises: nothing
--   locks:  those rows, ascending: two relays mark the same ones
create function heliograph.mark_published(p_project text, p_ids jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_marked integer;
begin
    with unmarked as (
        select outbox_id from heliograph.outbox
         where project_id = p_project and published_at is null
           and outbox_id in (select (i #>> '{}')::bigint from jsonb_array_elements(p_ids) i)
         order by outbox_id for update)
    update heliograph.outbox o set published_at = p_now
      from unmarked u
     where o.outbox_id = u.outbox_id;
    get diagnostics v_marked = row_count;
    return to_jsonb(v_marked);
end $$;
