-- append: what a running turn says on its way (K2): cards to its output box, signals to the log, its phase.
--   p_items: [{agent_id, turn_id, epoch, phase, said, cards: [{card_id, kind, content}], signals: [draft]}]. said is
--   the number of drafts that this owner appended before. A draft marked owed wakes others: see react.
--   Answers [{turn_id, outcome, first_seq}] in the order of p_items: 'ok'; 'stale', or 'refused' with code and message
--   (too_many_cards, payload_too_large), which wrote nothing.
--   The same call again (a lost reply) is 'ok' and writes nothing: cards are known by id, drafts by said.
--   raises: 23514 for a card that says it is a deliverable: only an ending writes one
--   locks:  the heads, then the runs
create function heliograph.append(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_item jsonb;
    v_refusal jsonb;
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_answer jsonb := '[]';
begin
    perform heliograph._lock_items(p_project, p_items);
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        if not heliograph._owns(p_project, v_item ->> 'agent_id', v_item ->> 'turn_id',
                                (v_item ->> 'epoch')::bigint) then
            v_answer := v_answer || jsonb_build_object('turn_id', v_item ->> 'turn_id', 'outcome', 'stale');
            continue;
        end if;
        v_refusal := heliograph._refuse_said(p_project, v_item, v_limits);
        if v_refusal is null then
            v_refusal := jsonb_build_object('outcome', 'ok', 'first_seq', heliograph._say(p_project, v_item, v_limits, p_now));
        end if;
        v_answer := v_answer || (jsonb_build_object('turn_id', v_item ->> 'turn_id') || v_refusal);
    end loop;
    return v_answer;
end $$;

-- _lock_items: lock what gated items {agent_id} concern: their heads, then the runs of these.
--   raises: nothing
--   locks:  the heads, then the runs
create function heliograph._lock_items(p_project text, p_items jsonb) returns void
    language plpgsql as $$
begin
    perform heliograph._lock_heads(p_project, array(
        select distinct i ->> 'agent_id' from jsonb_array_elements(p_items) i));
    perform heliograph._lock_runs(p_project, array(
        select distinct heliograph._run_of(i ->> 'agent_id') from jsonb_array_elements(p_items) i));
end $$;

-- _refuse_said: null, or why the cards and signals of an item are not taken.
--   raises: nothing
--   locks:  nothing
create function heliograph._refuse_said(p_project text, p_item jsonb, p_limits heliograph.project_limits) returns jsonb
    language sql stable as $$
    select coalesce(
        case when pg_column_size(p_item) > p_limits.payload_bytes_max / 2
             then heliograph._refuse_signals(p_item -> 'signals', p_limits) end,
        case when pg_column_size(p_item) > p_limits.blob_bytes_max / 2 then (
            select heliograph._refuse_content(c -> 'content', p_limits)
              from jsonb_array_elements(p_item -> 'cards') with ordinality a (c, n)
             where octet_length((c -> 'content')::text) > p_limits.blob_bytes_max order by n limit 1) end,
        case when jsonb_array_length(p_item -> 'cards') > 0 then (
            select heliograph._refused('too_many_cards', format('the turn has %s cards; at most %s are allowed',
                                       t.card_count, p_limits.cards_max))
              from heliograph.agent_turns t
             where t.project_id = p_project and t.agent_turn_id = p_item ->> 'turn_id'
               and t.card_count + jsonb_array_length(p_item -> 'cards') > p_limits.cards_max) end)
$$;

-- _say: write the cards and, once, the drafts of one gated item, and its phase. Answers the log position of the first draft.
--   raises: see append
--   locks:  nothing; the caller holds the head and the run, and has passed the gate
create function heliograph._say(p_project text, p_item jsonb, p_limits heliograph.project_limits, p_now timestamptz)
    returns bigint language plpgsql as $$
declare
    v_drafts jsonb := coalesce(p_item -> 'signals', '[]');
    v_lease heliograph.leases;
    v_first bigint;
begin
    update heliograph.agent_state_head set phase = p_item ->> 'phase'
     where project_id = p_project and agent_id = p_item ->> 'agent_id' and phase <> p_item ->> 'phase';
    if jsonb_array_length(p_item -> 'cards') > 0 then
        perform heliograph._put_cards(p_project, p_item ->> 'turn_id', (p_item ->> 'epoch')::bigint, p_item -> 'cards',
                                      p_limits, p_now);
    end if;
    if v_drafts = '[]' then
        return null;
    end if;
    select l.* into v_lease from heliograph.leases l
     where l.project_id = p_project and l.agent_id = p_item ->> 'agent_id'
       and l.turn_epoch = (p_item ->> 'epoch')::bigint;
    if v_lease.said > (p_item ->> 'said')::integer then
        return v_lease.said_seq;
    end if;
    v_first := heliograph._log(p_project, heliograph._run_of(p_item ->> 'agent_id'), p_item ->> 'turn_id', v_drafts, p_now);
    update heliograph.leases set said = said + jsonb_array_length(v_drafts), said_seq = v_first
     where project_id = p_project and agent_id = v_lease.agent_id and turn_epoch = v_lease.turn_epoch;
    return v_first;
end $$;

-- _put_cards: append cards to the output box of a turn, in order; a card id that exists is left alone.
--   raises: 23514 for a deliverable
--   locks:  nothing; the caller holds the head
create function heliograph._put_cards(
    p_project text, p_turn_id text, p_epoch bigint, p_cards jsonb, p_limits heliograph.project_limits, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_box_id text;
    v_count integer;
begin
    select output_box_id into v_box_id from heliograph.agent_turns
     where project_id = p_project and agent_turn_id = p_turn_id;
    insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
    select p_project, c.item ->> 'card_id', v_box_id, p_turn_id, p_epoch, c.item ->> 'kind',
           heliograph._stored(p_project, c.item -> 'content', p_limits.card_bytes_max, p_now), p_now
      from jsonb_array_elements(p_cards) with ordinality c (item, n)
     order by c.n
    on conflict do nothing;
    get diagnostics v_count = row_count;
    if v_count > 0 then
        update heliograph.agent_turns set card_count = card_count + v_count
         where project_id = p_project and agent_turn_id = p_turn_id;
    end if;
end $$;
