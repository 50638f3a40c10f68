-- The outbox: messages to publish, at least once. The receiver deduplicates by the key of the row (G-61).

-- read_outbox: return the oldest due rows for the wires (79_wires.sql): task events and, in a project with a wire
--   besides postgres, commands with a subject.
--   Returns [{outbox_id, kind, key, target, subject, body, wires}]. target: the application of the turn. wires: the
--   wires that the row must reach; a worker that lacks one of them does not publish it. A task event contains ids, and
--   no content (L0-86, L0-107).
--   raises: see _enter
--   Takes no locks: two relays may publish the same row, and the receiver deduplicates by key.
create function heliograph.read_outbox(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    -- read in the same snapshot as the rows: a row that was written after a wire was declared names this wire
    v_wires constant jsonb := heliograph._wires(p_project);
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object(
                   'outbox_id', o.outbox_id, 'kind', o.kind, 'key', o.key, 'target', t.target,
                   'subject', coalesce(o.subject, 'evt.agent.' || t.agent_id || '.task'),
                   'body', coalesce(c.body, o.body, jsonb_build_object(
                       'agent_turn_id', t.agent_turn_id, 'status', t.outcome, 'output_box_id', t.output_box_id,
                       'deliverable_card_id', heliograph._deliverable_id(t.agent_turn_id))),
                   'wires', v_wires) order by o.outbox_id), '[]')
          from ((select * from heliograph.outbox e
                  where e.project_id = p_project and e.published_at is null and e.kind = 'task_event'
                  order by e.due_at, e.outbox_id limit p_limit)
                union all
                (select * from heliograph.outbox c
                  where c.project_id = p_project and c.published_at is null and c.kind = 'cmd' and c.due_at <= p_now
                    and c.subject is not null and v_wires - 'postgres' <> '[]'
                  order by c.due_at, c.outbox_id limit p_limit)) o
          left join lateral (  -- each by its key, because a join may read all turns
                select x.agent_turn_id, x.agent_id, x.outcome, x.output_box_id,
                       (select h.target from heliograph.agent_state_head h
                         where h.project_id = p_project and h.agent_id = x.agent_id) as target
                  from heliograph.agent_turns x
                 where x.project_id = p_project and x.agent_turn_id = o.agent_turn_id offset 0) t on true
          left join lateral heliograph._command(p_project, o.agent_turn_id, o.call_id, o.body) c on true);
end $$;

-- mark_published: record that rows of the outbox have been published. A task event is done. A command is due again
--   after 1, 2, 4 .. 60 seconds, until its call is resolved (K18).
--   p_keys: [key]. A second call changes nothing for an event. Returns the number of rows.
--   raises: see _enter
--   locks:  those rows, skipping rows that another transaction has locked
create function heliograph.mark_published(p_project text, p_keys jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_marked integer;
begin
    perform heliograph._check_json(p_keys);
    perform heliograph._check_strings('p_keys[]', p_keys);
    with unmarked as (
        select key from heliograph.outbox
         where project_id = p_project and heliograph._is_unpublished(published_at)
           and key = any (array(select jsonb_array_elements_text(p_keys)))
         -- a locked row is being marked by another relay, or its call is being resolved. A sweep resolves several turns
         -- one after another, and so does not lock all of their commands in this order
         order by key for update skip locked)
    update heliograph.outbox o
       set published_at = case when o.kind = 'cmd' then null else p_now end, deliveries = o.deliveries + 1,
           due_at = case when o.kind = 'cmd' then heliograph._redelivery_at(o.deliveries, p_now) else o.due_at end
      from unmarked u
     where o.project_id = p_project and o.key = u.key;
    get diagnostics v_marked = row_count;
    return to_jsonb(v_marked);
end $$;

-- _is_unpublished: the condition of the index outbox_unpublished in other words, so that a look-up by key does not use
--   that index and read all unpublished rows.
create function heliograph._is_unpublished(p_published_at timestamptz) returns boolean
    language sql immutable as $$
    select coalesce(p_published_at, 'infinity') = 'infinity'
$$;

-- _redelivery_at: when a command that was delivered p_deliveries times before is due again.
create function heliograph._redelivery_at(p_deliveries integer, p_now timestamptz) returns timestamptz
    language sql immutable as $$
    select p_now + least(60, power(2, least(p_deliveries, 6))) * interval '1 second'
$$;
