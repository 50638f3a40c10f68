-- Boxes. A turn reads its context box, which never changes, and appends to its output box, which no other turn writes
-- to (L0-90 to L0-92). A fork is one row: it contains the cards of its base up to the position at which it was made
-- (L0-98). So a fork costs the same for any base, and each card belongs to one box.

-- put_boxes: create context boxes with their cards (L0-95). A context box never changes.
--   p_items: [{box_id, cards: [{card_id, kind, content}]}]. A card without an id becomes card:<box_id>:<n>.
--   Returns [{box_id, outcome}] in the order of p_items. 'put'. 'duplicate': the box exists with the same cards.
--   'conflict': a box of another kind, or with other cards, has this id. 'rejected' with code and message:
--   payload_too_large, card_exists.
--   raises: see _enter; 22023 for an invalid id, the id of a turn's own box or deliverable, and a card without kind or
--           content
--   locks:  the new boxes in ascending id; no other transaction can see them yet
create function heliograph.put_boxes(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_item record;
    v_answers jsonb := '{}';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{box_id,cards}');
    perform heliograph._check_box(i ->> 'box_id') from jsonb_array_elements(p_items) i;
    perform heliograph._check_box_card(c) from jsonb_array_elements(p_items) i, jsonb_array_elements(i -> 'cards') c;
    for v_item in select i.item, i.n from jsonb_array_elements(p_items) with ordinality i (item, n)
        order by i.item ->> 'box_id', i.n loop
        v_answers := v_answers || jsonb_build_object(v_item.n::text, heliograph._put_box(p_project, v_item.item,
                v_limits, p_now));
    end loop;
    return heliograph._box_results(p_items, v_answers);
end $$;

-- fork_boxes: fork boxes: a fork contains the cards that its base has now. The base is a context box, a fork, or the
--   output box of a turn.
--   p_items: [{box_id, base_box_id, writer_turn_id}]. With writer_turn_id the fork is an output box of this turn,
--   which may write to it after replace_boxes; without, it is a context box.
--   Returns [{box_id, outcome}] in the order of p_items. 'forked'. 'duplicate': the same fork exists and remains
--   unchanged. 'conflict': another box has this id. 'unknown_box': there is no such base. 'unknown_turn': there is no
--   such writer.
--   raises: see _enter; 22023 for an invalid id, or the id of a turn's own box
--   locks:  the bases against prune; the new boxes in ascending id
create function heliograph.fork_boxes(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_item record;
    v_answers jsonb := '{}';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{box_id,base_box_id,writer_turn_id}');
    perform heliograph._check_box(i ->> 'box_id') from jsonb_array_elements(p_items) i;
    for v_item in select i.item, i.n from jsonb_array_elements(p_items) with ordinality i (item, n)
        order by i.item ->> 'box_id', i.n loop
        v_answers := v_answers || jsonb_build_object(v_item.n::text, heliograph._fork_box(
            p_project, v_item.item ->> 'box_id', v_item.item ->> 'base_box_id', v_item.item ->> 'writer_turn_id',
            p_now));
    end loop;
    return heliograph._box_results(p_items, v_answers);
end $$;

-- replace_boxes: replace the boxes of running turns (L0-97), for example by a compacted context or by a fork. Later
--   cards and the deliverable go to the new output box (L0-82).
--   p_items: [{agent_id, turn_id, epoch, context_box_id, output_box_id}]. A missing key changes nothing; a
--   context_box_id of null removes the context. The output box is the turn's own, box_<turn>, or a fork for this turn.
--   The context is a box that no turn writes to.
--   Returns [{turn_id, outcome}] in the order of p_items. 'ok'. 'stale'. 'rejected' with code and message; nothing
--   changes: unknown_box, box_not_writable, box_in_use.
--   raises: see _enter
--   locks:  the heads; the boxes against prune
create function heliograph.replace_boxes(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_item jsonb;
    v_verdict jsonb;
    v_answer jsonb := '[]';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{agent_id,turn_id,epoch,context_box_id,output_box_id}');
    perform heliograph._lock_heads(p_project, array(
        select distinct i ->> 'agent_id' from jsonb_array_elements(p_items) i));
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_verdict := '{"outcome": "stale"}';
        if heliograph._owns(p_project, v_item ->> 'agent_id', v_item ->> 'turn_id', (v_item ->> 'epoch')::bigint) then
            v_verdict := coalesce(heliograph._reject_boxes(p_project, v_item), '{"outcome": "ok"}');
        end if;
        if v_verdict ->> 'outcome' = 'ok' then
            update heliograph.agent_turns
               set output_box_id = coalesce(v_item ->> 'output_box_id', output_box_id),
                   context_box_id = case when v_item ? 'context_box_id' then v_item ->> 'context_box_id'
                       else context_box_id end
             where project_id = p_project and agent_turn_id = v_item ->> 'turn_id';
        end if;
        v_answer := v_answer || (jsonb_build_object('turn_id', v_item -> 'turn_id') || v_verdict);
    end loop;
    return v_answer;
end $$;

-- _put_box: one box {box_id, cards}; see put_boxes. Returns {outcome, ..}.
--   raises: 23505 for a card id that another caller takes at the same moment
--   locks:  the new box
create function heliograph._put_box(
    p_project text, p_item jsonb, p_limits heliograph.project_limits, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_box_id text := p_item ->> 'box_id';
    v_cards jsonb := coalesce(nullif(p_item -> 'cards', 'null'), '[]');
    v_bytes integer := octet_length(v_cards::text);
    v_hash text := encode(sha256(convert_to(v_cards::text, 'UTF8')), 'hex');
    v_rejection jsonb;
begin
    v_rejection := (
        select heliograph._reject_content(c.item -> 'content', p_limits)
          from jsonb_array_elements(v_cards) with ordinality c (item, n)
         where heliograph._reject_content(c.item -> 'content', p_limits) is not null order by c.n limit 1);
    if v_rejection is not null then
        return v_rejection;
    end if;
    if not exists (select from heliograph.boxes where project_id = p_project and box_id = v_box_id) then
        v_rejection := (
            select heliograph._rejection('card_exists',
                                         format('another card has the id %s: choose another id', x.card_id))
              from jsonb_array_elements(v_cards) c
             cross join lateral (select y.card_id from heliograph.cards y
                                  where y.project_id = p_project and y.card_id = c ->> 'card_id' offset 0) x
             order by x.card_id limit 1);
        if v_rejection is not null then
            return v_rejection;
        end if;
        insert into heliograph.boxes (project_id, box_id, kind, hash, created_at)
        values (p_project, v_box_id, 'context', v_hash, p_now) on conflict do nothing;
        if found then
            insert into heliograph.cards (project_id, card_id, box_id, kind, content, created_at)
            select p_project, coalesce(c.item ->> 'card_id', 'card:' || v_box_id || ':' || c.n), v_box_id,
                   c.item ->> 'kind', heliograph._store_content(
                       p_project, c.item -> 'content', v_bytes, p_limits.card_bytes_max, p_now), p_now
              from jsonb_array_elements(v_cards) with ordinality c (item, n)
             order by c.n;
            return '{"outcome": "put"}';
        end if;
    end if;
    return (select jsonb_build_object('outcome', case when hash = v_hash then 'duplicate' else 'conflict' end)
              from heliograph.boxes where project_id = p_project and box_id = v_box_id);
end $$;

-- _fork_box: one fork; see fork_boxes. Returns {outcome}.
--   locks:  the base's row, or that of the turn that writes to it, against prune; the new box
create function heliograph._fork_box(
    p_project text, p_box_id text, p_base_box_id text, p_writer_turn_id text, p_now timestamptz
) returns jsonb language plpgsql as $$
begin
    if not heliograph._lock_box(p_project, p_base_box_id) then
        return '{"outcome": "unknown_box"}';
    elsif p_writer_turn_id is not null and not exists (
            select from heliograph.agent_turns
             where project_id = p_project and agent_turn_id = p_writer_turn_id and state <> 'done') then
        return '{"outcome": "unknown_turn"}';
    end if;
    insert into heliograph.boxes (project_id, box_id, kind, base_box_id, base_position, writer_turn_id, created_at)
    values (p_project, p_box_id, case when p_writer_turn_id is null then 'context' else 'output' end, p_base_box_id,
            -- a box has one writer at a time, so no card is committed before this position later
            coalesce((select c.position from heliograph.cards c
                       where c.project_id = p_project and c.box_id = p_base_box_id order by c.position desc limit 1),
                     (select b.base_position from heliograph.boxes b
                       where b.project_id = p_project and b.box_id = p_base_box_id), 0),
            p_writer_turn_id, p_now)
    on conflict do nothing;
    if found then
        return '{"outcome": "forked"}';
    end if;
    return (select jsonb_build_object('outcome', case when base_box_id = p_base_box_id
                                          and writer_turn_id is not distinct from p_writer_turn_id then 'duplicate'
                                              else 'conflict' end)
              from heliograph.boxes where project_id = p_project and box_id = p_box_id);
end $$;

-- _box_results: [{box_id, ..}] in the order of p_items, from results by their place.
create function heliograph._box_results(p_items jsonb, p_answers jsonb) returns jsonb
    language sql immutable as $$
    select coalesce(jsonb_agg(jsonb_build_object('box_id', i.item -> 'box_id') || (p_answers -> i.n::text)
                              order by i.n), '[]')
      from jsonb_array_elements(p_items) with ordinality i (item, n)
$$;

-- _check_box: reject an invalid id, and the id of a turn's own box, box_<turn>.
--   raises: 22023
create function heliograph._check_box(p_box_id text) returns void
    language plpgsql immutable as $$
begin
    if heliograph._wrong_id('a box id', p_box_id) is not null then
        raise exception using errcode = '22023', message = heliograph._wrong_id('a box id', p_box_id);
    elsif p_box_id like 'box\_%' then
        raise exception using errcode = '22023',
        message = format('a box id must not begin with box_, which is reserved for boxes of turns, not %s', p_box_id);
    end if;
end $$;

-- _check_box_card: reject a card that cannot be stored.
--   raises: 22023
create function heliograph._check_box_card(p_card jsonb) returns void
    language plpgsql immutable as $$
begin
    if heliograph._wrong_keys('p_items[].cards[]', p_card, '{card_id,kind,content}') is not null then
        raise exception using errcode = '22023',
        message = heliograph._wrong_keys('p_items[].cards[]', p_card, '{card_id,kind,content}');
    elsif p_card ->> 'card_id' is not null and heliograph._wrong_id('a card id', p_card ->> 'card_id') is not null then
        raise exception using errcode = '22023', message = heliograph._wrong_id('a card id', p_card ->> 'card_id');
    elsif coalesce(p_card ->> 'kind', 'task.deliverable') = 'task.deliverable'
        or octet_length(p_card ->> 'kind') > 200 then
        raise exception using errcode = '22023',
        message = 'kind must have at most 200 bytes and not be task.deliverable, which only an ending writes';
    elsif p_card -> 'content' is null then
        raise exception using errcode = '22023', message = 'a card must have content';
    end if;
end $$;
