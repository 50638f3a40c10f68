-- The causes of a signal: its parents, up to the root of the run in which everything began.
--
-- Each step is one look-up by the key of signals, in the same run or in the run from which a message was sent. So the
-- cost of a page depends on its length alone, however long the logs are.

-- _signal_place: the run and the position that the id of a signal names; no row for any other text.
create function heliograph._signal_place(p_id text) returns table (run_id text, seq bigint)
    language sql immutable as $$
    -- without a pattern for the whole id: this runs per step of a chain
    select substr(p_id, 5, length(p_id) - length(split_part(p_id, '_', -1)) - 5), split_part(p_id, '_', -1)::bigint
     where starts_with(p_id, 'sig_') and octet_length(p_id) between 7 and 223
       and split_part(p_id, '_', -1) ~ '^[1-9][0-9]{0,17}$' and length(split_part(p_id, '_', -1)) < length(p_id) - 5
    -- otherwise an outer join would compute the columns of texts that are no ids, and fail
    offset 0
$$;

-- _found_signal: a signal with the commit that contains it. entries: all signals of that commit; place: its index in
--   them. No row for a signal that the log does not have.
create function heliograph._found_signal(p_project text, p_run_id text, p_seq bigint)
    returns table (entry jsonb, entries jsonb, place integer, commit_seq bigint, at timestamptz, turn_id text)
    language sql stable as $$
    select s.entries -> (p_seq - s.seq)::integer, s.entries, (p_seq - s.seq)::integer, s.seq, s.at, s.agent_turn_id
      from (select * from heliograph.signals x
             where x.project_id = p_project and x.run_id = p_run_id and x.seq <= p_seq
             order by x.seq desc limit 1) s
     where p_seq < s.seq + s.count
$$;

-- The functions below run per signal. They are written in PL/pgSQL because PostgreSQL starts an executor for each call
-- of a scalar SQL function that it does not inline.

-- _parent_id: the id of an entry's parent; null for the root.
create function heliograph._parent_id(p_run_id text, p_commit_seq bigint, p_entry jsonb) returns text
    language plpgsql immutable as $$
begin
    if jsonb_typeof(p_entry -> 'parent') = 'number' then
        return 'sig_' || p_run_id || '_' || p_commit_seq + heliograph._as_whole(p_entry -> 'parent');
    end if;
    return heliograph._full_id(p_run_id, p_entry ->> 'parent');
end $$;

-- _bounded: {p_key: value}; for a value over 2,000 bytes as PostgreSQL stores it, {p_key_bytes: its size}.
create function heliograph._bounded(p_key text, p_value jsonb) returns jsonb
    language plpgsql immutable as $$
begin
    if pg_column_size(p_value) <= 2000 then
        return jsonb_build_object(p_key, p_value);
    end if;
    return jsonb_build_object(p_key || '_bytes', pg_column_size(p_value));
end $$;

-- _signal_json: a signal as clients read it: {id, name, payload, timestamp, run_id, seq, turn_id}, with source {agent,
--   parent} and trust where it has them. A payload over 2,000 bytes is replaced by payload_bytes.
create function heliograph._signal_json(
    p_run_id text, p_seq bigint, p_entry jsonb, p_parent_id text, p_at timestamptz, p_turn_id text
) returns jsonb language plpgsql stable as $$
declare
    v_payload constant jsonb := coalesce(p_entry -> 'payload', '{}');
    v_is_short constant boolean := pg_column_size(v_payload) <= 2000;
    v_agent constant text := p_entry ->> 'agent';
    v_signal jsonb;
begin
    v_signal := jsonb_build_object(  -- in one call, because each || copies the whole
        'id', 'sig_' || p_run_id || '_' || p_seq, 'name', p_entry -> 'name', 'run_id', p_run_id, 'seq', p_seq,
        'turn_id', p_turn_id, 'timestamp', to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        case when v_is_short then 'payload' else 'payload_bytes' end,
        case when v_is_short then v_payload else to_jsonb(pg_column_size(v_payload)) end,
        'source', case when v_agent is null then jsonb_build_object('parent', p_parent_id)
                       when p_parent_id is null then jsonb_build_object('agent', v_agent)
                       else jsonb_build_object('agent', v_agent, 'parent', p_parent_id) end);
    if v_agent is null and p_parent_id is null then
        v_signal := v_signal - 'source';
    end if;
    if p_entry ->> 'trust' = 'untrusted' then
        v_signal := v_signal || '{"trust": "untrusted"}';
    end if;
    return v_signal;
end $$;

-- _state_changes: the changes of the state that the end of a turn made: {changes: [{id, key, value, trust}]}, from the
--   commit of its agent:completed at index p_place. Empty if it made none.
create function heliograph._state_changes(p_run_id text, p_commit_seq bigint, p_entries jsonb, p_place integer)
    returns jsonb language plpgsql stable as $$
declare
    v_changes jsonb;
begin
    select jsonb_agg(jsonb_build_object('id', heliograph._signal_id(p_run_id, p_commit_seq + e.n - 1),
                                        'key', substr(e.entry ->> 'name', 7, length(e.entry ->> 'name') - 14))
                     || heliograph._bounded('value', coalesce(e.entry #> '{payload,value}', 'null'))
                     || case when e.entry ->> 'trust' = 'untrusted' then jsonb '{"trust": "untrusted"}' else '{}' end
                     order by e.n)
      into v_changes
      from jsonb_array_elements(p_entries) with ordinality e (entry, n)
     where e.entry ->> 'name' like 'state:%:changed' and e.entry -> 'parent' = to_jsonb(p_place);
    return case when v_changes is null then '{}' else jsonb_build_object('changes', v_changes) end;
end $$;

-- _turn_json: {turn_id, agent, outcome, attempts, parent_turn_id, parent_call_id} of a turn; parent_*: the turn that
--   delegated it. Only turn_id if the turn is pruned.
create function heliograph._turn_json(p_project text, p_turn_id text) returns jsonb
    language sql stable as $$
    select coalesce(
        (select jsonb_strip_nulls(jsonb_build_object(
                    'turn_id', t.agent_turn_id, 'agent', split_part(t.agent_id, '/', 2), 'outcome', t.outcome,
                    'attempts', t.attempts, 'parent_turn_id', t.parent_turn_id, 'parent_call_id', t.parent_call_id))
           from heliograph.agent_turns t where t.project_id = p_project and t.agent_turn_id = p_turn_id),
        jsonb_build_object('turn_id', p_turn_id))
$$;

-- _reject_signal: null, or the rejection of an id whose signal the log does not have: unknown_signal or pruned_signal.
create function heliograph._reject_signal(p_project text, p_signal_id text) returns jsonb
    language plpgsql stable as $$
declare
    v_place record;
    v_run record;
begin
    select * into v_place from heliograph._signal_place(p_signal_id);
    if v_place.run_id is null then
        return heliograph._rejection('unknown_signal', format(
            'no signal %s: the id of a signal is sig_<run>_<position>', left(p_signal_id, 200)));
    end if;
    select r.status, r.signal_seq, r.pruned_seq, r.forked_seq into v_run
      from heliograph.runs r where r.project_id = p_project and r.run_id = v_place.run_id;
    if v_run.status is null then
        return case when exists (select from heliograph.pruned p
                                  where p.project_id = p_project and p.id = 'run:' || v_place.run_id)
            then heliograph._rejection('pruned_signal', format('run %s is pruned, with its signal %s',
                                                               v_place.run_id, p_signal_id))
            else heliograph._rejection('unknown_signal', format('no signal %s: there is no run %s', p_signal_id,
                                                                v_place.run_id)) end;
    elsif v_place.seq > v_run.signal_seq then
        return heliograph._rejection('unknown_signal', format(
            case v_run.status when 'ended' then 'no signal %s: run %s ended with %s signals'
                 else 'no signal %s yet: run %s has %s signals and still runs' end,
            p_signal_id, v_place.run_id, v_run.signal_seq));
    elsif v_place.seq <= v_run.forked_seq then
        return heliograph._rejection('unknown_signal', format(
            'no signal %s: run %s shares its first %s signals with the run that it forks, and this one is %s',
            p_signal_id, v_place.run_id, v_run.forked_seq, heliograph._signal_id(
                heliograph._owner_at(p_project, v_place.run_id, v_place.seq), v_place.seq)));
    elsif not exists (select from heliograph._found_signal(p_project, v_place.run_id, v_place.seq)) then
        return heliograph._rejection('pruned_signal', format(
            'signal %s is pruned: the log of run %s begins at position %s', p_signal_id, v_place.run_id,
            v_run.pruned_seq + 1));
    end if;
    return null;
end $$;

-- _joined_signals: the signals of the join that activated or skipped an agent, from the payload of the signal about it:
--   [{pattern, id, signal}], at most p_limit. signal: as _signal_json returns it; absent if the log does not have it.
create function heliograph._joined_signals(
    p_project text, p_run_id text, p_seq bigint, p_payload jsonb, p_limit integer
) returns jsonb language plpgsql stable as $$
declare
    v_joined jsonb;
begin
    select jsonb_agg(jsonb_strip_nulls(jsonb_build_object('pattern', m.pattern, 'id', m.id)) || case
               when f.entry is null then '{}' else jsonb_build_object('signal', heliograph._signal_json(
                   p.run_id, p.seq, f.entry, heliograph._parent_id(p.run_id, f.commit_seq, f.entry),
                   heliograph._time_of(f.entry -> 'at', f.place, f.entries #> '{0,at}', f.at),
                   f.turn_id)) end order by m.n)
      into v_joined
      from (select e.n, left(e.member ->> 'pattern', 200) as pattern,
                   case when e.member ->> 'before' ~ '^[1-9][0-9]{0,8}$'
                        then heliograph._signal_id(p_run_id, p_seq - (e.member ->> 'before')::bigint)
                        else left(e.member ->> 'signal', 223) end as id
              from jsonb_array_elements(case when jsonb_typeof(p_payload -> 'joined') = 'array'
                                             then p_payload -> 'joined' else '[]' end) with ordinality e (member, n)
             order by e.n limit p_limit) m
      left join lateral heliograph._signal_place(m.id) p on true
      left join lateral heliograph._found_signal(p_project, p.run_id, p.seq) f on true;
    return coalesce(v_joined, '[]');
end $$;

-- _chain: up to p_limit causes of a signal, the signal itself first, as why returns them; and the id of the next cause,
--   or null at the root. is_more: that cause exists. It ends before a parent that the log does not have, and where a
--   parent does not come before its child.
create function heliograph._chain(
    p_project text, p_run_id text, p_seq bigint, p_limit integer, out links jsonb, out next text, out is_more boolean
) language plpgsql stable as $$
declare
    v_run_id text := p_run_id;
    v_seq bigint := p_seq;
    v_place record;
    v_found record;  -- the commit of the last link: the next cause is often in the same one
    v_entry jsonb;
    v_link jsonb;
    v_links jsonb[] := '{}';
    v_turn jsonb;  -- of the last link with a turn: most turns emit several in a row
    v_number integer := 0;
    v_joined_left integer := 1000;  -- signals of joins in one answer
begin
    select null::text as run_id, null::bigint as commit_seq into v_found;
    loop
        -- in the same run, a cause comes before its effect
        if v_found.run_id is distinct from v_run_id or v_seq < v_found.commit_seq then
            -- in memory, see 88_effects.sql
            select v_run_id as run_id, f.commit_seq, f.at, f.turn_id, f.entries || '[]' as entries
              into v_found from heliograph._found_signal(p_project, v_run_id, v_seq) f;
            is_more := found;
        end if;
        exit when not is_more or v_number = p_limit;
        v_entry := v_found.entries -> (v_seq - v_found.commit_seq)::integer;
        next := heliograph._parent_id(v_run_id, v_found.commit_seq, v_entry);
        v_link := heliograph._signal_json(
            v_run_id, v_seq, v_entry, next, heliograph._time_of(v_entry -> 'at', v_seq - v_found.commit_seq,
                v_found.entries #> '{0,at}', v_found.at), v_found.turn_id);
        if v_found.turn_id is not null then
            if v_turn ->> 'turn_id' is distinct from v_found.turn_id then
                v_turn := heliograph._turn_json(p_project, v_found.turn_id);
            end if;
            v_link := v_link || jsonb_build_object('turn', v_turn);
        end if;
        if v_entry ->> 'name' = 'agent:completed' then
            v_link := v_link || heliograph._state_changes(v_run_id, v_found.commit_seq, v_found.entries,
                                                          (v_seq - v_found.commit_seq)::integer);
        end if;
        if v_entry -> 'payload' ? 'joined' and v_entry ->> 'name' in ('agent:activated', 'agent:skipped') then
            v_link := v_link || jsonb_build_object('joined', heliograph._joined_signals(
                p_project, v_run_id, v_seq, v_entry -> 'payload', v_joined_left));
            v_joined_left := v_joined_left - jsonb_array_length(v_link -> 'joined');
        end if;
        v_number := v_number + 1;
        v_links[v_number] := v_link;
        select p.run_id, p.seq into v_place from heliograph._signal_place(next) p;
        is_more := coalesce(v_place.run_id <> v_run_id or v_place.seq < v_seq, false);
        exit when not is_more;
        v_run_id := v_place.run_id;
        v_seq := v_place.seq;
    end loop;
    links := to_jsonb(v_links);
end $$;

-- why: return the causes of a signal, the signal itself first and the root last, over turns, delegations and messages
--   from other runs; at most p_limit of them, from 1 to 1000.
--   Returns {outcome: 'ok', signal, chain, end, next}. chain: [signal], as _signal_json returns them, with turn: the
--   turn that emitted it; changes: the changes of the state that the end of that turn made; joined: the signals that
--   activate_when_all waited for, up to 1000 in the chain, see _joined_signals. The payload of agent:activated and
--   agent:skipped contains the guard. end: 'root'; 'limit', where the chain continues with
--   why(next); 'pruned' or 'missing', where the log does not have the next cause. next: the id of the next cause, or
--   null.
--   Or {outcome: 'rejected', code, message}: unknown_signal, also for a signal of another project; pruned_signal.
--   raises: see _enter; 22023 for a limit out of range
create function heliograph.why(p_project text, p_signal_id text, p_limit integer) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_rejection constant jsonb := heliograph._reject_signal(p_project, p_signal_id);
    v_chain record;
begin
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = 'p_limit must be from 1 to 1000';
    elsif v_rejection is not null then
        return v_rejection;
    end if;
    select c.* into v_chain
      from heliograph._signal_place(p_signal_id) p
     cross join lateral heliograph._chain(p_project, p.run_id, p.seq, p_limit) c;
    return jsonb_build_object(
        'outcome', 'ok', 'signal', p_signal_id, 'chain', v_chain.links, 'next', v_chain.next,
        'end', case when v_chain.next is null then 'root' when v_chain.is_more then 'limit'
                    when heliograph._reject_signal(p_project, v_chain.next) ->> 'code' = 'pruned_signal' then 'pruned'
                    else 'missing' end);
end $$;
