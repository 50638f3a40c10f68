-- Pruning of logs and runs, and of contexts, blobs and tombstones. See prune.

-- _prune_logs: shorten logs by up to p_limit rows: the logs of p_run_ids, whose turns were just deleted, and of the
--   oldest runs. An open run loses the front of its log. An ended run without turns loses its whole log and is then
--   deleted itself. Answers {signals, runs}.
--   locks:  the runs, and the heads of deleted runs, skipping rows that another transaction has locked
create function heliograph._prune_logs(
    p_project text, p_run_ids text[], p_before timestamptz, p_limit integer, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_run_id text;
    v_run heliograph.runs;
    v_rows integer;
    v_signals integer := 0;
    v_runs integer := 0;
begin
    for v_run_id in
        select r.run_id from heliograph.runs r
         where r.project_id = p_project and r.created_at < p_before and r.run_id = any (p_run_ids || array(
               select x.run_id from heliograph.runs x
                where x.project_id = p_project and x.created_at < p_before order by x.created_at, x.run_id
                    limit 10 * p_limit))
           and not heliograph._has_forks(p_project, r.run_id)
           and case r.status when 'ended' then r.ended_at < p_before and not exists (
                        select from heliograph.agent_turns t where t.project_id = p_project and t.run_id = r.run_id)
               else exists (select from heliograph.signals s where s.project_id = p_project and s.run_id = r.run_id
                               and s.seq = r.pruned_seq + 1 and s.at < p_before) end
         order by r.created_at, r.run_id
    loop
        exit when v_signals >= p_limit or v_runs >= p_limit;
        select * into v_run from heliograph.runs
         where project_id = p_project and run_id = v_run_id order by run_id for update skip locked;
        -- a fork locks the run that it shares, so no fork appears from here on
        continue when not found or heliograph._has_forks(p_project, v_run_id);
        v_rows := heliograph._shorten_log(p_project, v_run, p_before, p_limit - v_signals);
        v_signals := v_signals + v_rows;
        v_runs := v_runs + heliograph._forget_run(p_project, v_run, p_now);
    end loop;
    return jsonb_build_object('signals', v_signals, 'runs', v_runs);
end $$;

-- _has_forks: whether a run's log is shared by a fork, which reads it as long as it exists.
create function heliograph._has_forks(p_project text, p_run_id text) returns boolean
    language sql stable as $$
    select exists (select from heliograph.runs where project_id = p_project and forked_from = p_run_id)
$$;

-- _shorten_log: delete up to p_limit rows from the front of a run's log, up to the first that is too recent, has a
--   pending signal, or is the cause of a remaining turn. Returns their number.
--   The caller holds the run.
create function heliograph._shorten_log(p_project text, p_run heliograph.runs, p_before timestamptz, p_limit integer)
    returns integer language plpgsql as $$
declare
    v_needed bigint;
    v_upto bigint;
    v_rows integer;
begin
    v_needed := least((select min(least(t.cause_seq, t.activation_seq)) from heliograph.agent_turns t
                        where t.project_id = p_project and t.run_id = p_run.run_id),
                      (select min(s.seq) from heliograph.signals s
                        where s.project_id = p_project and s.run_id = p_run.run_id and s.is_pending));
    select max(f.seq + f.count - 1) into v_upto
      from (select s.seq, s.count, bool_and(s.at < p_before and s.seq + s.count <= coalesce(v_needed, s.seq + s.count))
                                       over (order by s.seq) as is_old
              from (select * from heliograph.signals x
                     where x.project_id = p_project and x.run_id = p_run.run_id order by x.seq limit p_limit) s) f
     where f.is_old;
    delete from heliograph.signals where project_id = p_project and run_id = p_run.run_id and seq <= v_upto;
    get diagnostics v_rows = row_count;
    delete from heliograph.run_checkpoints c  -- the newest one remains, because the next one continues it
     where c.project_id = p_project and c.run_id = p_run.run_id and c.seq <= v_upto
       and c.seq < (select max(n.seq) from heliograph.run_checkpoints n
                     where n.project_id = p_project and n.run_id = p_run.run_id);
    update heliograph.runs set pruned_seq = v_upto where project_id = p_project and run_id = p_run.run_id
        and pruned_seq < v_upto;
    return v_rows;
end $$;

-- _forget_run: delete an ended run of which only its agents remain. Returns 1 if it was deleted, else 0.
--   Its heads are found by a range of their key: an agent id is <run>/<agent>, and 0 is the character after the slash.
--   locks:  its heads and the positions of subscriptions in it, unless another transaction has locked one; the caller
--           holds the run
create function heliograph._forget_run(p_project text, p_run heliograph.runs, p_now timestamptz) returns integer
    language plpgsql as $$
declare
    v_heads integer;
    v_gone integer;
begin
    if p_run.status <> 'ended'
       or exists (select from heliograph.agent_turns where project_id = p_project and run_id = p_run.run_id)
       or exists (select from heliograph.signals where project_id = p_project and run_id = p_run.run_id)
       or exists (select from heliograph.callbacks where project_id = p_project and state = 'due'
                     and callback_id = heliograph._callback_id(p_project, 'run:' || p_run.run_id)) then
        return 0;
    end if;
    select count(*) into v_heads from heliograph.agent_state_head h
     where h.project_id = p_project and h.agent_id >= p_run.run_id || '/' and h.agent_id < p_run.run_id || '0';
    select count(*) into v_gone from (
        select from heliograph.agent_state_head h
         where h.project_id = p_project and h.agent_id >= p_run.run_id || '/' and h.agent_id < p_run.run_id || '0'
         order by h.agent_id for update skip locked) held;
    -- a subscriber that records positions holds those of several runs: waiting for it could be a deadlock
    if v_gone < v_heads or exists (
        select from heliograph.subscriptions s
         cross join lateral (select from heliograph.subscription_runs x
                              where x.project_id = p_project and x.name = s.name and x.run_id = p_run.run_id) x
         where s.project_id = p_project
           and not heliograph._holds_position(p_project, s.name, p_run.run_id)) then
        return 0;
    end if;
    delete from heliograph.agent_state_head h
     where h.project_id = p_project and h.agent_id >= p_run.run_id || '/' and h.agent_id < p_run.run_id || '0';
    insert into heliograph.pruned (project_id, id, hash, outcome, pruned_at)
    values (p_project, 'run:' || p_run.run_id, p_run.request_hash, p_run.outcome, p_now) on conflict do nothing;
    delete from heliograph.run_checkpoints where project_id = p_project and run_id = p_run.run_id;
    delete from heliograph.callbacks
     where project_id = p_project and callback_id = heliograph._callback_id(p_project, 'run:' || p_run.run_id);
    delete from heliograph.subscription_runs x
     using heliograph.subscriptions s
     where s.project_id = p_project and x.project_id = p_project and x.name = s.name and x.run_id = p_run.run_id;
    delete from heliograph.runs where project_id = p_project and run_id = p_run.run_id;
    return 1;
end $$;

-- _holds_position: lock the position of a subscription in a run; false if another transaction has locked it.
create function heliograph._holds_position(p_project text, p_name text, p_run_id text) returns boolean
    language plpgsql volatile as $$
begin
    perform from heliograph.subscription_runs
      where project_id = p_project and name = p_name and run_id = p_run_id order by name for update skip locked;
    return found;
end $$;

-- _is_read: whether a turn has this box as its context, or a box was forked from it.
create function heliograph._is_read(p_project text, p_box_id text) returns boolean
    language sql stable as $$
    select exists (select from heliograph.agent_turns where project_id = p_project and context_box_id = p_box_id)
        or exists (select from heliograph.boxes where project_id = p_project and base_box_id = p_box_id)
$$;

-- _prune_contexts: delete old context boxes that no turn and no fork uses. Answers {boxes}.
--   locks:  the boxes, skipping rows that another transaction has locked
create function heliograph._prune_contexts(p_project text, p_before timestamptz, p_limit integer) returns jsonb
    language plpgsql as $$
declare
    v_boxes text[];
begin
    v_boxes := array(
        select b.box_id from heliograph.boxes b
         where b.project_id = p_project and b.kind = 'context' and b.created_at < p_before
           and not heliograph._is_read(p_project, b.box_id)
         order by b.created_at, b.box_id limit p_limit for update skip locked);
    v_boxes := array(select id from unnest(v_boxes) with ordinality u (id, n)
                      where not heliograph._is_read(p_project, id) order by n);  -- again, under the locks
    delete from heliograph.cards where project_id = p_project and box_id = any (v_boxes);
    delete from heliograph.boxes where project_id = p_project and box_id = any (v_boxes);
    return jsonb_build_object('boxes', cardinality(v_boxes));
end $$;

-- _prune_rest: delete blobs without a card, old tombstones, and rows of the feed of runs that no subscription reads
--   any more. Answers {blobs, tombstones}.
--   locks:  the blobs, skipping those that are being put again
create function heliograph._prune_rest(p_project text, p_before timestamptz, p_limit integer) returns jsonb
    language plpgsql as $$
declare
    v_blobs text[];
    v_forgotten integer;
begin
    -- reads all cards that point to a blob once: under row security no index finds the cards of one blob
    v_blobs := array(
        select b.blob_id from heliograph.blobs b
         where b.project_id = p_project and b.created_at < p_before and b.blob_id not in (
               select c.content ->> '$blob' from heliograph.cards c
                where c.project_id = p_project and c.content ? '$blob' and c.content ->> '$blob' is not null)
         order by b.created_at, b.blob_id limit p_limit for update skip locked);
    with gone as (  -- checked again, under the locks
        delete from heliograph.blobs b
         where b.project_id = p_project and b.blob_id = any (v_blobs) and b.blob_id not in (
               select c.content ->> '$blob' from heliograph.cards c
                where c.project_id = p_project and c.content ? '$blob' and c.content ->> '$blob' is not null)
        returning b.blob_id)
    select coalesce(array_agg(blob_id order by blob_id), '{}') into v_blobs from gone;
    delete from heliograph.run_feed
     where project_id = p_project and feed_id = any (array(
           select f.feed_id
             from (select x.feed_id, x.run_id from heliograph.run_feed x where x.project_id = p_project
                    order by x.feed_id limit p_limit for update skip locked) f
            where (select r.run_id from heliograph.runs r  -- `not exists` beside `or` would read all runs into a table
                    where r.project_id = p_project and r.run_id = f.run_id) is null
               or f.feed_id <= coalesce((select min(s.feed_id) from heliograph.subscriptions s
                                          where s.project_id = p_project), f.feed_id)
            order by f.feed_id limit p_limit));
    delete from heliograph.pruned
     where project_id = p_project and id = any (array(
           select p.id from heliograph.pruned p
            where p.project_id = p_project and p.pruned_at < p_before - interval '30 days'
            order by p.pruned_at, p.id limit p_limit));
    get diagnostics v_forgotten = row_count;
    return jsonb_build_object('blobs', cardinality(v_blobs), 'tombstones', v_forgotten);
end $$;
