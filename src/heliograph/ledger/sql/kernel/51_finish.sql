-- finish: end running turns: the owner commits the deliverable, the last signals, the run's new state and the turns
--   that these signals wake (K1, K24).
--   p_items: [{agent_id, turn_id, epoch, outcome, content, signals: [draft], reaction, recording, follows}]; reaction:
--   see _commit_reactions. recording: see _recording_of. follows: the turn whose ending, earlier in this call, makes
--   the run from which the reaction was computed; unless that one is accepted, this one is a conflict (K24d).
--   Returns [{turn_id, outcome, targets, run}] in the order of p_items. 'ok'. 'conflict': the run has changed since
--   the reaction was computed; nothing is written, and run is the new view to compute the reaction from. 'duplicate':
--   this epoch has delivered before; its reply was lost. 'stale': another worker owns the turn. 'rejected' with code
--   and message; nothing is written: payload_too_large, fan_out, queue_full, result_fields, invalid_content,
--   invalid_signal; id_conflict, if the id of a turn to wake is taken. targets: the workers to notify, for the whole
--   call.
--   raises: see _enter; 22023 for no content, an unknown outcome, an invalid turn or context; 23514 for a run that may
--           not end yet, 23505 for the id of a turn that another caller creates at the same moment
--   locks:  the heads of the turns and of the agents activated, then the runs
create function heliograph.finish(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_bytes integer := heliograph._check_json(p_items);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_agents text[] := array(select i ->> 'agent_id' from jsonb_array_elements(p_items) i);
    v_runs text[] := array(select heliograph._run_of(a) from unnest(v_agents) a);
    v_steps integer[];  -- see _following
    v_ahead bigint[];
    v_places integer[];
    v_ended integer[];
    v_agents_ended text[];
    v_rejected integer[];
    v_turns_ended text[] := '{}';
    v_ending jsonb;
    v_woken text[] := '{}';
    v_parts jsonb := '{}';  -- {place: part of its answer} of the items that are not accepted
begin
    perform heliograph._check_reactions('p_items[]', p_items,
        '{agent_id,turn_id,epoch,outcome,content,signals,reaction,recording,follows}');
    perform heliograph._lock_heads(p_project, v_agents || heliograph._activated(p_items));
    perform heliograph._lock_runs(p_project, v_runs);
    select f.steps, f.ahead into v_steps, v_ahead from heliograph._following(p_items, v_runs) f;
    for v_places in select places from heliograph._rounds(v_runs, v_steps) loop
        with judged as materialized (
            select n,  -- the verdict of an accepted ending is null
                   case when h.agent_id is null then jsonb_build_object('outcome', case when c.turn_epoch is null
                                                                        then 'stale' else 'duplicate' end)
                        when r.version + coalesce(v_steps[n], 0)  -- a missing version never matches
                             is distinct from (i.item #>> '{reaction,version}')::bigint
                          or i.item ->> 'follows' is not null and coalesce(v_steps[n], 0) = 0
                             and not i.item ->> 'follows' = any (v_turns_ended)
                        then jsonb_build_object('outcome', 'conflict', 'run', heliograph._run_view(r))
                        else coalesce(heliograph._reject_deliverable(i.item),
                            case when heliograph._exceeds(i.item, v_bytes, least(v_limits.payload_bytes_max,
                                                                                 v_limits.blob_bytes_max))
                                 then heliograph._reject_ending(i.item, v_limits) end,
                            case when t.result_fields is not null
                                 then heliograph._reject_fields(i.item, t.result_fields) end,
                            case when i.item #> '{reaction,activations,0}' is not null
                                 then coalesce(heliograph._reject_activations(p_project, v_runs[n],
                                         i.item #> '{reaction,activations}', v_limits),
                                               heliograph._reject_taken(p_project, i.item)) end,
                            heliograph._reject_drafts(v_runs[n], r.signal_seq + coalesce(v_ahead[n], 0),
                                                      i.item -> 'signals')) end as verdict
              from unnest(v_places) n
             cross join lateral (select p_items -> (n - 1) as item offset 0) i
              left join lateral (
                   select x.agent_id, x.active_agent_turn_id from heliograph.agent_state_head x
                    where x.project_id = p_project and x.agent_id = v_agents[n] and x.status = 'running'
                      and x.active_agent_turn_id = i.item ->> 'turn_id'
                      and x.turn_epoch = (i.item ->> 'epoch')::bigint offset 0) h on true
              left join lateral (select * from heliograph.runs x
                                  where x.project_id = p_project and x.run_id = v_runs[n] offset 0) r on true
              left join lateral (
                   select x.result_fields from heliograph.agent_turns x
                    where x.project_id = p_project and x.agent_turn_id = h.active_agent_turn_id offset 0) t on true
              left join lateral (
                   select x.turn_epoch from heliograph.cards x
                    where h.agent_id is null and x.project_id = p_project
                      and x.card_id = heliograph._deliverable_id(i.item ->> 'turn_id')
                      and x.turn_epoch = (i.item ->> 'epoch')::bigint offset 0) c on true
        )
        select v_parts || coalesce(jsonb_object_agg(n, verdict) filter (where verdict is not null), '{}'),
               array_agg(n order by n) filter (where verdict is null),
               array_agg(v_agents[n] order by n) filter (where verdict is null)
          into v_parts, v_ended, v_agents_ended
          from judged;
        if v_steps is not null and v_parts <> '{}' then
            v_rejected := heliograph._after_rejected(v_places, v_runs, v_steps, v_parts);
            select array_agg(n order by n), array_agg(v_agents[n] order by n) into v_ended, v_agents_ended
              from unnest(v_ended) n where n <> all (v_rejected);
        end if;
        if v_ended is not null then
            v_ending := heliograph._items_at(p_items, v_ended);
            perform heliograph._terminal(p_project, v_ending, v_bytes, v_limits.card_bytes_max, p_now);
            v_woken := v_woken || heliograph._dispatch_next(p_project, v_agents_ended, p_now);
            if v_steps is not null then
                v_turns_ended := v_turns_ended || array(select i ->> 'turn_id' from jsonb_array_elements(v_ending) i);
                v_ending := heliograph._log_followed(p_project, v_ending, p_now);
            end if;
            v_woken := v_woken || heliograph._commit_reactions(p_project, v_ending, 1, p_now);
        end if;
        if cardinality(v_rejected) > 0 then
            v_parts := v_parts || heliograph._conflicts(p_project, v_rejected, v_runs);
        end if;
    end loop;
    return heliograph._answers(p_project, 'turn_id', p_items, 'ok', v_parts, v_woken);
end $$;

-- _reject_deliverable: null, or the rejection of invalid content: a deliverable has text or fields (L0-83).
--   raises: 22023 for no content, or an unknown outcome
create function heliograph._reject_deliverable(p_item jsonb) returns jsonb
    language sql as $$
    select case when jsonb_typeof(p_item #> '{content,text}') = 'string' or jsonb_typeof(p_item #> '{content,fields}')
        = 'array' then
                     case when not coalesce(p_item ->> 'outcome' in ('success', 'partial', 'failed', 'timeout',
                                                                     'canceled'), false)
                          then heliograph._invalid('outcome must be success, partial, failed, timeout or canceled') end
                when p_item ->> 'content' is null then heliograph._invalid('a deliverable must have content')
                else heliograph._rejection('invalid_content',
                         'the content of a deliverable must have text, a string, or fields, a list') end
$$;

-- _reject_taken: null, or the rejection of an ending that wakes a turn with a taken id, or two turns with one id. The
--   insert finds an id that another caller takes at the same moment.
create function heliograph._reject_taken(p_project text, p_item jsonb) returns jsonb
    language sql stable as $$
    select heliograph._rejection('id_conflict', format('turn %s exists', w.turn_id))
      from (select a ->> 'turn_id' as turn_id, count(*) as more
            from jsonb_array_elements(p_item #> '{reaction,activations}') a group by 1) w
      left join lateral (
           select x.agent_turn_id from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = w.turn_id offset 0) taken on true
     where w.turn_id is not null and (w.more > 1 or taken.agent_turn_id is not null)
     order by w.turn_id limit 1
$$;

-- _reject_ending: null, or the rejection of signals or content of an ending that are too large.
create function heliograph._reject_ending(p_item jsonb, p_limits heliograph.project_limits) returns jsonb
    language sql stable as $$
    select coalesce(heliograph._reject_signals(p_item -> 'signals', p_limits),
                    heliograph._reject_content(p_item -> 'content', p_limits))
$$;

-- _reject_fields: null, or the rejection of a successful deliverable without all required fields (L0-84, L0-85).
create function heliograph._reject_fields(p_item jsonb, p_fields jsonb) returns jsonb
    language sql immutable as $$
    select case when p_fields is not null and p_item ->> 'outcome' = 'success' then (
        select heliograph._rejection('result_fields', format(
                   'the deliverable of turn %s lacks the required fields %s: '
                   'add them, or end the turn as partial or failed', p_item ->> 'turn_id',
                   string_agg(coalesce(f ->> 'name', format('number %s of result_fields, which has no name', n)),
                              ', ' order by n)))
          from jsonb_array_elements(p_fields) with ordinality w (f, n)
         where coalesce(heliograph._as_boolean(f -> 'required'), true)
           and not jsonb_path_exists(p_item, '$.content.fields[*].name ? (@ == $name)', jsonb_build_object('name',
                   f -> 'name'))
        having count(*) > 0) end
$$;

-- release: return running turns to the queue without ending them, for example when their worker closes (L0-111). The
--   head becomes dispatched under the next epoch and keeps its place. A release does not count as an attempt.
--   p_items: [{agent_id, turn_id, epoch, failure}]. failure: {code, message} of a turn that no worker can run; it ends
--   as failed.
--   Returns [{turn_id, outcome, targets}] in the order of p_items. 'ok'. 'stopped': a stop was pending and has ended
--   the turn, unless another worker can still run its terminate phase. 'stale'.
--   raises: see _enter; 22023 for a failure without a code of 1 to 200 bytes and a message of 1 to 4000
--   locks:  the heads, and the runs of stopped turns
create function heliograph.release(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_item jsonb;
    v_woken text[];
    v_outcome text;
    v_answer jsonb := '[]';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{agent_id,turn_id,epoch,failure}');
    perform heliograph._check_failure(i -> 'failure') from jsonb_array_elements(p_items) i where i ? 'failure';
    perform heliograph._lock_items(p_project, p_items);
    for v_item in select item from jsonb_array_elements(p_items) with ordinality i (item, n) order by n loop
        v_woken := '{}';
        v_outcome := 'stale';
        if heliograph._owns(p_project, v_item ->> 'agent_id', v_item ->> 'turn_id', (v_item ->> 'epoch')::bigint) then
            v_woken := case when v_item ? 'failure'
                              or not heliograph._may_terminate(p_project, v_item ->> 'agent_id', p_now)
                            then heliograph._end_if_stopping(p_project, v_item ->> 'agent_id', p_now) end;
            v_outcome := 'stopped';
            if v_woken is null and v_item ? 'failure' then
                v_woken := heliograph._end_by_kernel(p_project, v_item ->> 'turn_id', 'failed',
                                                       v_item #>> '{failure,code}',
                                                       v_item #>> '{failure,message}', p_now);
                v_outcome := 'ok';
            elsif v_woken is null then
                v_woken := array[heliograph._release_head(p_project, v_item ->> 'agent_id', null, p_now)];
                v_outcome := 'ok';
            end if;
        end if;
        v_answer := v_answer || (jsonb_build_object('turn_id', v_item ->> 'turn_id', 'outcome', v_outcome)
                                 || heliograph._bells(p_project, v_woken));
    end loop;
    return v_answer;
end $$;

-- _check_failure: reject a failure without a code or without a message.
--   raises: 22023
create function heliograph._check_failure(p_failure jsonb) returns void
    language plpgsql immutable as $$
begin
    if heliograph._wrong_keys('p_items[].failure', p_failure, '{code,message}') is not null then
        raise exception using errcode = '22023',
        message = heliograph._wrong_keys('p_items[].failure', p_failure, '{code,message}');
    elsif not coalesce(octet_length(p_failure ->> 'code') between 1 and 200
                    and octet_length(p_failure ->> 'message') between 1 and 4000, false) then
        raise exception using errcode = '22023',
            message = 'a failure must have a code of 1 to 200 bytes and a message of 1 to 4000';
    end if;
end $$;

-- _release_head: take a running turn from its owner: running -> dispatched, epoch + 1, lease closed, its messages
--   pending again, due at p_due_at or at once. It keeps its place in the claim order (K22). Returns the agent.
--   The caller holds the head.
create function heliograph._release_head(
    p_project text, p_agent_id text, p_due_at timestamptz, p_now timestamptz
) returns text
    language plpgsql as $$
declare
    v_head heliograph.agent_state_head;
    v_now timestamptz;
begin
    select * into v_head from heliograph.agent_state_head where project_id = p_project and agent_id = p_agent_id;
    v_now := greatest(heliograph._not_before_cards(p_project, v_head.active_agent_turn_id, p_now), v_head.moved_at);
    update heliograph.leases set ended_at = v_now
     where project_id = p_project and agent_id = p_agent_id and turn_epoch = v_head.turn_epoch;
    update heliograph.agent_state_head
       set status = 'dispatched', turn_epoch = turn_epoch + 1, owner = null, lease_until = null, phase = null,
           due_at = p_due_at, moved_at = v_now
     where project_id = p_project and agent_id = p_agent_id;
    update heliograph.agent_inbox set status = 'pending', turn_epoch = v_head.turn_epoch + 1
     where project_id = p_project and agent_turn_id = v_head.active_agent_turn_id and status = 'processing';
    return p_agent_id;
end $$;

-- _may_terminate: whether a graceful stop of a turn is pending, and another worker can still run its terminate phase.
--   The caller holds the head.
create function heliograph._may_terminate(p_project text, p_agent_id text, p_now timestamptz) returns boolean
    language sql stable as $$
    select exists (
        select from heliograph.agent_state_head
         where project_id = p_project and agent_id = p_agent_id and terminates and force_at > p_now)
$$;

-- _end_if_stopping: end a running turn with a pending graceful stop. Returns the agents that it woke, or null without a
--   pending stop. The caller holds the head and the run.
create function heliograph._end_if_stopping(p_project text, p_agent_id text, p_now timestamptz) returns text[]
    language plpgsql as $$
declare
    v_head heliograph.agent_state_head;
begin
    select * into v_head from heliograph.agent_state_head where project_id = p_project and agent_id = p_agent_id;
    if v_head.stop_requested_at is null then
        return null;
    end if;
    return heliograph._end_by_kernel(p_project, v_head.active_agent_turn_id, 'canceled', 'CANCELED',
                                     coalesce(v_head.stop_reason, 'stopped'), p_now);
end $$;
