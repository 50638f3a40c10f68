-- append: what a running turn says on its way (K2): cards to its output box, signals to the log, its phase.
--   p_items: [{agent_id, turn_id, epoch, phase, said, cards: [{card_id, kind, content}], signals: [draft]}]. said is
--   the number of drafts that this owner appended before. A draft marked owed wakes others: see react.
--   Answers [{turn_id, outcome, first_seq}] in the order of p_items: 'ok' or 'stale', which wrote nothing.
--   The same call again (a lost reply) is 'ok' and writes nothing: cards are known by id, drafts by said.
--   raises: 22023 for a card of kind task.deliverable: only an ending writes one
--   locks:  the heads, then the runs
create function heliograph.append(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog as $$
declare
    v_item jsonb;
    v_first bigint;
    v_answer jsonb := '[]';
begin
    perform heliograph._lock_heads(p_project, (select array_agg(i ->> 'agent_id') from jsonb_array_elements(p_items) i));
    perform heliograph._lock_runs(p_project, (
        select array_agg(t.run_id) from jsonb_array_elements(p_items) i
          join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = i ->> 'turn_id'));
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        if not heliograph._owns(p_project, v_item ->> 'agent_id', v_item ->> 'turn_id',
                                (v_item ->> 'epoch')::bigint) then
            v_answer := v_answer || jsonb_build_object('turn_id', v_item ->> 'turn_id', 'outcome', 'stale');
            continue;
        end if;
        update heliograph.agent_state_head set phase = v_item ->> 'phase'
         where project_id = p_project and agent_id = v_item ->> 'agent_id' and phase <> v_item ->> 'phase';
        perform heliograph._put_cards(p_project, v_item ->> 'turn_id', (v_item ->> 'epoch')::bigint,
                                      coalesce(v_item -> 'cards', '[]'), p_now);
        v_first := heliograph._say(p_project, v_item, p_now);
        v_answer := v_answer || jsonb_build_object('turn_id', v_item ->> 'turn_id', 'outcome', 'ok', 'first_seq', v_first);
    end loop;
    return v_answer;
end $$;

-- _say: append the drafts of one item, once. Answers the log position of the first.
--   raises: nothing
--   locks:  nothing; the caller holds the head and the run
create function heliograph._say(p_project text, p_item jsonb, p_now timestamptz) returns bigint
    language plpgsql as $$
declare
    v_drafts jsonb := coalesce(p_item -> 'signals', '[]');
    v_owed integer := (select count(*) from jsonb_array_elements(v_drafts) d where (d ->> 'owed')::boolean);
    v_run heliograph.runs;
    v_lease heliograph.leases;
begin
    select l.* into v_lease from heliograph.leases l
     where l.project_id = p_project and l.agent_id = p_item ->> 'agent_id'
       and l.turn_epoch = (p_item ->> 'epoch')::bigint;
    if v_drafts = '[]' or v_lease.said > (p_item ->> 'said')::integer then
        return v_lease.said_seq;
    end if;
    select r.* into v_run from heliograph.runs r
      join heliograph.agent_turns t on t.project_id = r.project_id and t.run_id = r.run_id
     where t.project_id = p_project and t.agent_turn_id = p_item ->> 'turn_id';
    perform heliograph._write_signals(p_project, v_run.run_id, v_run.signal_seq, p_item ->> 'turn_id', v_drafts, p_now);
    update heliograph.leases set said = said + jsonb_array_length(v_drafts), said_seq = v_run.signal_seq + 1
     where project_id = p_project and agent_id = v_lease.agent_id and turn_epoch = v_lease.turn_epoch;
    update heliograph.runs
       set signal_seq = signal_seq + jsonb_array_length(v_drafts), owed = owed + v_owed,
           version = version + sign(v_owed)::integer, updated_at = p_now
     where project_id = p_project and run_id = v_run.run_id;
    return v_run.signal_seq + 1;
end $$;

-- _put_cards: append cards to the output box of a turn, in order; a card id that exists is left alone.
--   raises: 22023 for a deliverable
--   locks:  nothing; the caller holds the head and has passed the gate
create function heliograph._put_cards(
    p_project text, p_turn_id text, p_epoch bigint, p_cards jsonb, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_card jsonb;
begin
    for v_card in select item from jsonb_array_elements(p_cards) with ordinality c (item, n) order by n loop
        if v_card ->> 'kind' = 'task.deliverable' then
            raise exception using errcode = '22023', message = 'a deliverable is written by finish, and by nothing else';
        end if;
        insert into heliograph.cards (project_id, card_id, agent_turn_id, turn_epoch, kind, content, created_at)
        values (p_project, v_card ->> 'card_id', p_turn_id, p_epoch, v_card ->> 'kind', v_card -> 'content', p_now)
        on conflict do nothing;
        if found then
            insert into heliograph.box_cards (project_id, box_id, card_id)
            select p_project, output_box_id, v_card ->> 'card_id'
              from heliograph.agent_turns where project_id = p_project and agent_turn_id = p_turn_id;
        end if;
    end loop;
end $$;
