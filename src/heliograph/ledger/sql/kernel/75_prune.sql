-- Pruning: the kernel deletes turns and runs that ended long ago, a few rows at a time. It keeps their tombstones for
-- 30 days.

-- prune: delete finished turns and ended runs from before p_before with everything that belongs to them; the unneeded
--   front of the logs of open runs; unused contexts, blobs and tombstones; expired memories; and circuit breakers and
--   rate limits that no call has used for another 30 days.
--   A turn remains while a row of its outbox or its callback is pending, or while a fork or another turn reads one of
--   its boxes. A log keeps pending signals and the causes of remaining turns. A run with forks keeps its log, and the
--   turns of the shared part; the log of a fork is deleted as a whole. Each deleted turn and run leaves a
--   tombstone, by which a late duplicate is recognized; prune deletes it 30 days later. Rows that another transaction
--   has locked remain until the next call. p_limit: the maximum of each kind in this call. Only an operator may call
--   this.
--   Returns {turns, runs, signals, cards, boxes, blobs, tombstones, memories, breakers, rates, more}; signals counts
--   rows of the log; more: call again.
--   raises: see _enter; 22023 for a limit that is not between 1 and 10000, and for a p_before that is not in the past
--   locks:  the heads of the turns, the turns, the runs and their heads, the boxes, the blobs, the memories, the
--           breakers and the buckets: rows that another transaction has locked are skipped
create function heliograph.prune(p_project text, p_before timestamptz, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_turns text[];
    v_runs text[];
    v_done jsonb;
begin
    if not coalesce(p_limit between 1 and 10000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 10000, not %s', p_limit);
    elsif not coalesce(p_before < p_now, false) then
        raise exception using errcode = '22023',
            message = format('p_before must be a time in the past, not %s', p_before);
    end if;
    v_turns := heliograph._lock_old_turns(p_project, p_before, p_limit);
    v_runs := array(select distinct t.run_id from heliograph.agent_turns t
                     where t.project_id = p_project and t.agent_turn_id = any (v_turns));
    v_done := heliograph._prune_turns(p_project, v_turns, p_now)
              || heliograph._prune_logs(p_project, v_runs, p_before, p_limit, p_now)
              || heliograph._prune_contexts(p_project, p_before, p_limit)
              || heliograph._prune_rest(p_project, p_before, p_limit)
              || heliograph._prune_memories(p_project, p_limit, p_now)
              || heliograph._prune_targets(p_project, p_before, p_limit);
    return v_done || jsonb_build_object('more', exists (
        select from jsonb_each_text(v_done - 'cards') d where d.value::integer >= p_limit));
end $$;

-- _lock_old_turns: lock finished turns that may be deleted, oldest runs first, and in each run oldest turns first. The
--   turns are checked twice: the second time, under the locks, forks of their boxes that were made meanwhile are seen.
--   locks:  their heads and the turns, skipping rows that another transaction has locked
create function heliograph._lock_old_turns(p_project text, p_before timestamptz, p_limit integer) returns text[]
    language plpgsql as $$
declare
    v_turns text[];
    v_agents text[];
begin
    v_turns := array(
        select t.agent_turn_id
          from (select x.run_id, x.created_at from heliograph.runs x
                 where x.project_id = p_project and x.created_at < p_before order by x.created_at, x.run_id) r
         cross join lateral (  -- so that a long run whose first turns remain is not read whole
               select y.agent_turn_id, y.activation_seq, y.queue_seq
                 from (select x.agent_turn_id, x.activation_seq, x.queue_seq, x.state, x.finished_at
                         from heliograph.agent_turns x
                        where x.project_id = p_project and x.run_id = r.run_id order by x.activation_seq, x.queue_seq
                            limit 10 * p_limit) y
                where y.state = 'done' and y.finished_at < p_before and not heliograph._is_needed(p_project,
                        y.agent_turn_id)
                order by y.activation_seq, y.queue_seq limit p_limit) t
         order by r.created_at, r.run_id, t.activation_seq, t.queue_seq limit p_limit);
    v_agents := array(
        select h.agent_id from heliograph.agent_state_head h
         where h.project_id = p_project and h.agent_id = any (array(
               select distinct t.agent_id from heliograph.agent_turns t
                where t.project_id = p_project and t.agent_turn_id = any (v_turns)))
         order by h.agent_id for update skip locked);
    v_turns := array(
        select t.agent_turn_id from heliograph.agent_turns t
         where t.project_id = p_project and t.agent_turn_id = any (v_turns) and t.agent_id = any (v_agents)
         order by t.agent_turn_id for update skip locked);
    return array(select id from unnest(v_turns) with ordinality u (id, n)
                  where not heliograph._is_needed(p_project, id) order by n);
end $$;

-- _boxes_of: the boxes that a turn may have written to.
create function heliograph._boxes_of(p_project text, p_turn_id text) returns text[]
    language sql stable as $$
    select 'box_' || p_turn_id || array(
        select b.box_id from heliograph.boxes b where b.project_id = p_project and b.writer_turn_id = p_turn_id
            order by b.box_id)
$$;

-- _is_needed: whether a finished turn must remain: its event, report, stop, command, halt or callback is not delivered,
--   a fork of its run shares its activation, or another turn's fork or context uses a box that it wrote.
create function heliograph._is_needed(p_project text, p_turn_id text) returns boolean
    language sql stable as $$
    select exists (select from heliograph.outbox o
                    where o.project_id = p_project and o.published_at is null
                      and o.key = any (array['evt:' || p_turn_id, 'report:' || p_turn_id, 'stop:' || p_turn_id]))
        or exists (select from heliograph.outbox o
                    where o.project_id = p_project and o.published_at is null
                      and o.key = any (array(
                          select prefix || w.agent_turn_id || ':' || w.tool_call_id
                            from heliograph.turn_waiting_tools w cross join unnest(array['cmd:', 'halt:']) prefix
                           where w.project_id = p_project and w.agent_turn_id = p_turn_id)))
        or exists (select from heliograph.callbacks c
                    where c.project_id = p_project and c.callback_id = heliograph._callback_id(p_project, 'turn:'
                            || p_turn_id)
                      and c.state = 'due')
        or exists (select from heliograph.agent_turns t
                     join heliograph.runs f on f.project_id = p_project and f.forked_from = t.run_id
                                           and f.forked_seq >= t.activation_seq
                    where t.project_id = p_project and t.agent_turn_id = p_turn_id)
        or exists (select from unnest(heliograph._boxes_of(p_project, p_turn_id)) mine (box_id)
                    where exists (select from heliograph.boxes f
                                   where f.project_id = p_project and f.base_box_id = mine.box_id
                                     and f.writer_turn_id is distinct from p_turn_id)
                       or exists (select from heliograph.agent_turns r
                                   where r.project_id = p_project and r.context_box_id = mine.box_id
                                     and r.agent_turn_id <> p_turn_id))
$$;

-- _prune_turns: delete these turns and their rows, and leave tombstones. Returns {turns, cards}.
--   The caller holds their heads and the turns.
create function heliograph._prune_turns(p_project text, p_turn_ids text[], p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_cards integer;
    v_agents text[];
begin
    insert into heliograph.pruned (project_id, id, outcome, pruned_at)
    select p_project, 'turn:' || t.agent_turn_id, t.outcome, p_now from heliograph.agent_turns t
     where t.project_id = p_project and t.agent_turn_id = any (p_turn_ids) order by t.agent_turn_id
    on conflict do nothing;
    -- each agent's oldest leases: later ones than those of these turns are not read
    delete from heliograph.leases l
     using (select t.agent_id, max(c.turn_epoch) as epoch from heliograph.agent_turns t
             cross join lateral (
                   select x.turn_epoch from heliograph.cards x
                    where x.project_id = p_project and x.card_id = heliograph._deliverable_id(t.agent_turn_id)
                   offset 0) c
             where t.project_id = p_project and t.agent_turn_id = any (p_turn_ids) group by t.agent_id) old
     where l.project_id = p_project and l.agent_id = old.agent_id and l.turn_epoch <= old.epoch
       and l.agent_turn_id = any (p_turn_ids);
    delete from heliograph.outbox
     where project_id = p_project and published_at is not null and key = any (array(
           select prefix || id from unnest(p_turn_ids) id, unnest(array['evt:', 'report:', 'stop:']) prefix
           union all
           select prefix || w.agent_turn_id || ':' || w.tool_call_id
             from heliograph.turn_waiting_tools w cross join unnest(array['cmd:', 'halt:']) prefix
            where w.project_id = p_project and w.agent_turn_id = any (p_turn_ids)));
    delete from heliograph.cards
     where project_id = p_project and box_id = any (array(
           select unnest(heliograph._boxes_of(p_project, id)) from unnest(p_turn_ids) id));
    get diagnostics v_cards = row_count;
    delete from heliograph.boxes where project_id = p_project and writer_turn_id = any (p_turn_ids);
    delete from heliograph.budgets where project_id = p_project and turn_id = any (p_turn_ids);
    delete from heliograph.callbacks where project_id = p_project and callback_id = any (array(
           select heliograph._callback_id(p_project, 'turn:' || id) from unnest(p_turn_ids) id));
    delete from heliograph.turn_waiting_tools where project_id = p_project and agent_turn_id = any (p_turn_ids);
    delete from heliograph.agent_inbox where project_id = p_project and agent_turn_id = any (p_turn_ids);
    with gone as (
        delete from heliograph.agent_turns where project_id = p_project and agent_turn_id = any (p_turn_ids)
        returning agent_id, parent_turn_id, parent_call_id)
    select array_agg(distinct agent_id) into v_agents
      from gone where agent_id like '%/%/%' and right(split_part(agent_id, '/', 3), 160) = right(parent_turn_id || '-'
              || parent_call_id, 160);
    -- an instance that was created for one child, and is named after its call, is never used again and is deleted. Any
    -- other head remains, so that its epochs continue: a fencing token is given once
    delete from heliograph.agent_state_head h
     where h.project_id = p_project and h.agent_id = any (v_agents) and h.status = 'idle' and h.agent_id <> all (array(
           select distinct t.agent_id from heliograph.agent_turns t
            where t.project_id = p_project and t.agent_id = any (v_agents)
              and t.run_id = any (array(select distinct heliograph._run_of(a) from unnest(v_agents) a))));
    return jsonb_build_object('turns', cardinality(p_turn_ids), 'cards', v_cards);
end $$;
