-- append: write cards, signals and the phase of running turns (K2).
--   p_items: {agent_id, turn_id, epoch, phase, signals_emitted, cards: [{card_id, kind, content}], signals: [draft],
--   recording}, as one array for each key. signals_emitted: the number of drafts that this owner has appended before.
--   A draft with is_pending wakes other agents: see react. recording: see _recording_of.
--   Returns rows {turn_id, outcome, first_seq, code, message} in the order of the items. 'ok'. 'stale'. 'rejected' with
--   code and message; nothing is written: too_many_cards, payload_too_large, card_exists, reserved_name,
--   invalid_signal. A repeated call is 'ok' and writes nothing: the kernel recognizes cards by id, and drafts by
--   signals_emitted.
--   raises: see _enter; 22023 for arrays of the wrong shape, an invalid card or phase; 23514 for a card of kind
--           task.deliverable, which only an ending writes
--   locks:  the heads, then the runs
create function heliograph.append(
    p_project text, p_agent_id text[], p_turn_id text[], p_epoch bigint[], p_phase text[], p_signals_emitted bigint[],
    p_cards jsonb[], p_signals jsonb[], p_recording jsonb[], p_now timestamptz
) returns table (turn_id text, outcome text, first_seq bigint, code text, message text)
    language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_runs constant text[] := heliograph._runs_of(p_agent_id);
    v_bytes integer;
    v_places integer[];
    -- one value for each item of a round
    v_rejection jsonb[]; v_head_at tid[]; v_run_at tid[]; v_lease_at tid[]; v_base bigint[]; v_written integer[];
    v_pending integer[]; v_seq bigint[];
    -- one value for each item of the call
    v_rejections jsonb[]; v_firsts bigint[];
begin
    perform heliograph._check_shapes(array[
        heliograph._shape(p_agent_id), heliograph._shape(p_turn_id), heliograph._shape(p_epoch),
        heliograph._shape(p_phase), heliograph._shape(p_signals_emitted), heliograph._shape(p_cards),
        heliograph._shape(p_signals), heliograph._shape(p_recording)]);
    v_bytes := heliograph._check_columns(p_cards || p_signals || p_recording);
    perform heliograph._check_phases(p_phase);
    perform heliograph._check_recorded(p_recording);
    perform heliograph._lock_heads(p_project, p_agent_id);
    perform heliograph._lock_runs(p_project, v_runs);
    for v_places in select places from heliograph._rounds(v_runs) order by places loop
        select array_agg(j.rejection), array_agg(j.head_at), array_agg(j.run_at), array_agg(j.lease_at),
               array_agg(j.base), array_agg(j.written), array_agg(j.pending), array_agg(j.first_seq)
          into v_rejection, v_head_at, v_run_at, v_lease_at, v_base, v_written, v_pending, v_seq
          from (select * from heliograph._judge_append(p_project, v_places, v_runs, p_agent_id, p_turn_id, p_epoch,
                                                       p_phase, p_signals_emitted, p_cards, p_signals, v_bytes,
                                                       v_limits) x order by x.k) j;
        for k in 1 .. cardinality(v_places) loop
            if v_rejection[k] is null and jsonb_array_length(p_cards[v_places[k]]) > 0 then
                v_rejection[k] := heliograph._put_cards(p_project, p_turn_id[v_places[k]], p_epoch[v_places[k]],
                                                        p_cards[v_places[k]], v_bytes, v_limits, p_now);
            end if;
            if v_rejection[k] is not null then
                v_written[k] := 0;
                v_head_at[k] := null;
                v_seq[k] := null;
            end if;
            v_rejections[v_places[k]] := v_rejection[k];
            v_firsts[v_places[k]] := v_seq[k];
        end loop;
        if array_remove(v_head_at, null) <> '{}' then
            update heliograph.agent_state_head h set phase = p_phase[v_places[k]]
              from generate_subscripts(v_places, 1) k where h.ctid = v_head_at[k];
        end if;
        if array_remove(v_written, 0) <> '{}' then
            perform heliograph._log_drafts(p_project, v_places, v_runs, p_turn_id, p_signals, p_recording, v_run_at,
                                           v_base, v_written, v_pending, p_now);
            update heliograph.leases l
               set signals_emitted = l.signals_emitted + v_written[k], last_append_seq = v_seq[k]
              from generate_subscripts(v_places, 1) k where l.ctid = v_lease_at[k] and v_written[k] > 0;
        end if;
    end loop;
    return query
    select p_turn_id[n], coalesce(v_rejections[n] ->> 'outcome', 'ok'), v_firsts[n], v_rejections[n] ->> 'code',
           v_rejections[n] ->> 'message'
      from generate_subscripts(p_turn_id, 1) n order by n;
end $$;

-- _lock_items: lock the heads of gated items {agent_id}, then the runs of these heads.
--   locks:  the heads, then the runs
create function heliograph._lock_items(p_project text, p_items jsonb) returns void
    language plpgsql as $$
begin
    perform heliograph._lock_heads(p_project, array(
        select distinct i ->> 'agent_id' from jsonb_array_elements(p_items) i));
    perform heliograph._lock_runs(p_project, array(
        select distinct heliograph._run_of(i ->> 'agent_id') from jsonb_array_elements(p_items) i));
end $$;

-- _reject_reserved: null, or the rejection of signals that only the kernel and reactions emit.
create function heliograph._reject_reserved(p_signals jsonb) returns jsonb
    language sql immutable as $$
    select case when jsonb_path_exists(p_signals, '$[*].name ? (@ starts with "workflow:" || @ starts with "kernel:")')
                then heliograph._rejection('reserved_name',
                                           'no turn emits signals whose names begin with workflow: or kernel:') end
$$;

-- _reject_logged: null, or the rejection of drafts that a running turn appends to the log of its run. p_base: the
--   newest signal of the run. p_bytes: see _exceeds.
create function heliograph._reject_logged(
    p_run_id text, p_base bigint, p_drafts jsonb, p_bytes integer, p_limits heliograph.project_limits
) returns jsonb language plpgsql stable as $$
begin
    return case when jsonb_array_length(p_drafts) > 0 then coalesce(
        heliograph._reject_reserved(p_drafts),
        case when heliograph._exceeds(p_drafts, p_bytes, p_limits.payload_bytes_max)
             then heliograph._reject_signals(p_drafts, p_limits) end,
        heliograph._reject_drafts(p_run_id, p_base, p_drafts)) end;
end $$;

-- _reject_cards: null, or the rejection of cards that are too large, or too many for their turn. p_bytes: see _exceeds.
create function heliograph._reject_cards(
    p_project text, p_turn_id text, p_cards jsonb, p_bytes integer, p_limits heliograph.project_limits
) returns jsonb
    language sql stable as $$
    select coalesce(
        case when p_bytes > p_limits.blob_bytes_max then (
            select heliograph._reject_content(c -> 'content', p_limits)
              from jsonb_array_elements(p_cards) with ordinality a (c, n)
             where octet_length((c -> 'content')::text) > p_limits.blob_bytes_max order by n limit 1) end,
        case when jsonb_array_length(p_cards) > 0 then (
            select heliograph._over_limit(
                       'too_many_cards', format('the turn would have %s cards',
                                                t.card_count + jsonb_array_length(p_cards)),
                       p_limits.cards_max, 'put the content into fewer cards', 'cards_max')
              from heliograph.agent_turns t
             where t.project_id = p_project and t.agent_turn_id = p_turn_id
               and t.card_count + jsonb_array_length(p_cards) > p_limits.cards_max) end)
$$;

-- _judge_append: the items of a round of append: each with its rejection, or else null, and the rows that it changes.
--   head_at: null if its phase remains. written: how many of its drafts are new; base: the newest signal of its run;
--   first_seq: where the log has its first draft. p_bytes: see _exceeds.
--   The caller holds the heads and the runs.
create function heliograph._judge_append(
    p_project text, p_places integer[], p_runs text[], p_agent_id text[], p_turn_id text[], p_epoch bigint[],
    p_phase text[], p_signals_emitted bigint[], p_cards jsonb[], p_signals jsonb[], p_bytes integer,
    p_limits heliograph.project_limits
) returns table (
    k bigint, rejection jsonb, head_at tid, run_at tid, lease_at tid, base bigint, written integer, pending integer,
    first_seq bigint
) language sql stable as $$
    select u.k, v.rejection, case when h.phase <> p_phase[u.n] then h.at end, r.at, l.at, r.signal_seq, w.written,
           case when w.written > 0 then heliograph._count_pending(p_signals[u.n]) end,
           case when w.written > 0 then r.signal_seq + 1 else l.last_append_seq end
      from unnest(p_places) with ordinality u (n, k)
     cross join lateral (
           select coalesce(jsonb_array_length(p_cards[u.n]), 0) as cards,
                  coalesce(jsonb_array_length(p_signals[u.n]), 0) as drafts offset 0) i
      left join lateral (
           select x.ctid as at, x.phase from heliograph.agent_state_head x
            where x.project_id = p_project and x.agent_id = p_agent_id[u.n] and x.status = 'running'
              and x.active_agent_turn_id = p_turn_id[u.n] and x.turn_epoch = p_epoch[u.n] offset 0) h on true
      left join lateral (
           select x.ctid as at, x.signal_seq from heliograph.runs x
            where x.project_id = p_project and x.run_id = p_runs[u.n] offset 0) r on true
      left join lateral (
           select x.ctid as at, x.last_append_seq,
                  coalesce(x.signals_emitted > p_signals_emitted[u.n], false) as has_drafts from heliograph.leases x
            where i.drafts > 0 and x.project_id = p_project and x.agent_id = p_agent_id[u.n]
              and x.turn_epoch = p_epoch[u.n] offset 0) l on true
     cross join lateral (
           select case when h.at is null then '{"outcome": "stale"}'
                  else coalesce(
                      case when i.drafts > 0 then heliograph._reject_reserved(p_signals[u.n]) end,
                      case when heliograph._exceeds(p_signals[u.n], p_bytes, p_limits.payload_bytes_max)
                           then heliograph._reject_signals(p_signals[u.n], p_limits) end,
                      case when i.cards > 0
                           then heliograph._reject_cards(p_project, p_turn_id[u.n], p_cards[u.n], p_bytes,
                                                         p_limits) end,
                      case when i.drafts > 0
                           then heliograph._reject_drafts(p_runs[u.n], r.signal_seq, p_signals[u.n]) end) end
                  as rejection offset 0) v
     cross join lateral (
           select case when v.rejection is null and not coalesce(l.has_drafts, false) then i.drafts
                       else 0 end as written offset 0) w
$$;

-- _put_cards: append cards to the output box of a turn, in order. A card that the box already has with the same kind
--   and content is skipped. Returns null, or the rejection if an id belongs to another card; then no card is written,
--   and prune deletes the blobs that were put. p_bytes: see _exceeds.
--   raises: 22023 for an invalid card, 23514 for a deliverable
--   locks:  a card id that another caller writes at the same moment; the caller holds the head
create function heliograph._put_cards(
    p_project text, p_turn_id text, p_epoch bigint, p_cards jsonb, p_bytes integer, p_limits heliograph.project_limits,
    p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_box_id text;
    v_wrong text;
    v_new text[];
begin
    select t.output_box_id, (select min(heliograph._wrong_card(c)) from jsonb_array_elements(p_cards) c) into v_box_id,
           v_wrong
      from heliograph.agent_turns t where t.project_id = p_project and t.agent_turn_id = p_turn_id;
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
    with put as (
        insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
        select p_project, c.item ->> 'card_id', v_box_id, p_turn_id, p_epoch, c.item ->> 'kind',
               heliograph._store_content(p_project, c.item -> 'content', p_bytes, p_limits.card_bytes_max, p_now), p_now
          from jsonb_array_elements(p_cards) with ordinality c (item, n)
         order by c.n
        on conflict do nothing
        returning card_id
    )
    select array_agg(card_id order by card_id) into v_new from put;
    if coalesce(cardinality(v_new), 0) < jsonb_array_length(p_cards) then
        v_wrong := heliograph._other_card(p_project, p_turn_id, p_cards);
    end if;
    if v_wrong is not null then
        delete from heliograph.cards where project_id = p_project and card_id = any (v_new);
        return heliograph._rejection('card_exists', format('another card has the id %s: choose another id', v_wrong));
    elsif v_new is not null then
        update heliograph.agent_turns set card_count = card_count + cardinality(v_new)
         where project_id = p_project and agent_turn_id = p_turn_id;
    end if;
    return null;
end $$;

-- _other_card: the id of one of these cards which is not the turn's own of that kind and content, in the box where it
--   writes.
create function heliograph._other_card(p_project text, p_turn_id text, p_cards jsonb) returns text
    language sql stable as $$
    select min(k.card_id)
      from jsonb_array_elements(p_cards) c (item)
      join heliograph.cards k on k.project_id = p_project and k.card_id = c.item ->> 'card_id'
      join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = p_turn_id
     where (k.box_id, k.agent_turn_id, k.kind) is distinct from (t.output_box_id, t.agent_turn_id, c.item ->> 'kind')
        or heliograph._content(p_project, k.content) <> c.item -> 'content'
$$;
