-- Durable subscriptions (S5). Subscribers of one name share its signals: each run has a position, and one subscriber
-- at a time has the signals after it. So the order of each run holds, and after a crash the signals since the position
-- are delivered again.
--
-- The feed has a row for each run of a project with subscriptions. Each transaction that writes signals moves the rows
-- of its runs to the end. Each subscription reads the new part of the feed, enters the runs that it does not know, and
-- marks those with signals after its position. So the work follows the news, and not the number of open runs. A commit
-- may be late: its row appears behind rows that were read already. So a subscription reads the feed again from feed_id
-- on, and raises feed_id only to a position that it saw before all transactions ended that were in progress then. It
-- compares positions and transactions, and never a time, so it misses no signal. The row of a run is deleted when the
-- run has ended, its signals are delivered, and feed_id has passed it.
--
-- No lock orders a new subscription and the writers. A writer looks for subscriptions after it has written. The
-- subscription opens when all transactions have ended that wrote to the log as it became visible.

-- _feed_runs: move these runs to the end of the feed of the project if it has a subscription.
--   locks:  the rows of these runs in the feed; the caller holds the runs, and has written their signals
create function heliograph._feed_runs(p_project text, p_run_ids text[]) returns void
    language plpgsql as $$
begin
    if exists (select from heliograph.subscriptions where project_id = p_project) then
        insert into heliograph.run_feed (project_id, run_id)
        select p_project, r from unnest(p_run_ids) r group by r order by r
        on conflict (project_id, run_id) do update set feed_id = default;
    end if;
end $$;

-- _start_of: the position after which a subscription reads a run from its start: a fork begins with its own signals,
--   because the run that it shares delivers the others.
create function heliograph._start_of(p_project text, p_run_id text) returns bigint
    language sql stable as $$
    select coalesce((select r.forked_seq from heliograph.runs r
                      where r.project_id = p_project and r.run_id = p_run_id), 0)
$$;

-- _enter_news: enter the runs of the feed that a subscription does not know, and mark those with signals after its
--   position, up to 5000. Raise its feed_id as far as no transaction can commit a run any more. Returns false if
--   another subscriber of the name does the same.
--   locks:  the subscription, and the positions that it marks, in ascending order
create function heliograph._enter_news(p_project text, p_name text, p_now timestamptz) returns boolean
    language plpgsql as $$
declare
    v_subscription heliograph.subscriptions;
    v_snapshot pg_snapshot;
    v_end bigint;  -- all runs of the feed up to here that are visible now are entered by this call
    v_runs text[];
    v_feed_ids bigint[];
    v_passable bigint;  -- no transaction can commit a run up to here any more
    v_passed bigint;
begin
    select * into v_subscription from heliograph.subscriptions
     where project_id = p_project and name = p_name order by name for update skip locked;
    if not found then
        return false;
    elsif v_subscription.writers is not null then
        return true;
    end if;
    v_snapshot := pg_current_snapshot();  -- before the feed is read: what it shows as ended is in there
    if v_subscription.next_xid <= pg_snapshot_xmin(v_snapshot) then
        v_passable := v_subscription.next_feed_id;
    end if;
    select array_agg(n.run_id order by n.feed_id), array_agg(n.feed_id order by n.feed_id) into v_runs, v_feed_ids
      from (select f.run_id, f.feed_id
              from heliograph.run_feed f
             cross join lateral (select x.signal_seq from heliograph.runs x
                                  where x.project_id = p_project and x.run_id = f.run_id offset 0) r
              left join lateral (
                   select x.position, x.has_news from heliograph.subscription_runs x
                    where x.project_id = p_project and x.name = p_name and x.run_id = f.run_id offset 0) s on true
             where f.project_id = p_project and f.feed_id > v_subscription.feed_id
               and (s.position is null
                    or s.position < r.signal_seq and (not s.has_news or f.feed_id <= v_passable))
             order by f.feed_id limit 5000) n;
    v_end := case when cardinality(v_runs) = 5000 then v_feed_ids[5000] else (
        select max(f.feed_id) from heliograph.run_feed f
         where f.project_id = p_project and f.feed_id > v_subscription.feed_id) end;
    if v_runs is not null then
        -- a release that has not committed may have read the log before the commit that the feed is about to pass:
        -- this waits for it, and then marks the run that it left without news
        insert into heliograph.subscription_runs (project_id, name, run_id, position, lease_until)
        select p_project, p_name, r, heliograph._start_of(p_project, r), p_now from unnest(v_runs) r order by r
        on conflict (project_id, name, run_id) do update
           set has_news = true, lease_until = greatest(subscription_runs.lease_until, excluded.lease_until)
         where not subscription_runs.has_news;
    end if;
    if v_passable <= v_end then
        v_passed := v_passable;
    end if;
    -- a transaction that writes to the feed has its number before its feed_id: it is below the end of a later snapshot.
    -- After a restore to another server, next_xid may be far beyond that end
    if v_end is not null and (v_passed is not null or v_subscription.next_xid is null
       or v_subscription.next_xid > pg_snapshot_xmax(v_snapshot)) then
        update heliograph.subscriptions
           set feed_id = coalesce(v_passed, feed_id), next_feed_id = v_end,
               next_xid = pg_snapshot_xmax(pg_current_snapshot())
         where project_id = p_project and name = p_name;
        perform heliograph._forget_runs(p_project, p_name, array(
            select f.run_id from heliograph.run_feed f
             where f.project_id = p_project and f.feed_id > v_subscription.feed_id and f.feed_id <= v_passed
             order by f.run_id));
    end if;
    return true;
end $$;

-- _enter_old: enter the next 1000 runs of a subscription that began with the start of each run.
--   The caller holds the subscription.
create function heliograph._enter_old(p_project text, p_name text, p_after text, p_now timestamptz) returns void
    language plpgsql as $$
declare
    v_runs constant text[] := array(
        select r.run_id from heliograph.runs r where r.project_id = p_project and r.run_id > p_after
         order by r.run_id limit 1000);
begin
    insert into heliograph.subscription_runs (project_id, name, run_id, position, lease_until)
    select p_project, p_name, r.run_id, greatest(r.pruned_seq, coalesce(r.forked_seq, 0)), p_now
      from heliograph.runs r
     where r.project_id = p_project and r.run_id = any (v_runs) order by r.run_id
    on conflict do nothing;
    update heliograph.subscriptions
       set entered_until = case when cardinality(v_runs) = 1000 then v_runs[1000] end
     where project_id = p_project and name = p_name;
    perform heliograph._forget_runs(p_project, p_name, v_runs);
end $$;

-- _forget_runs: delete the rows of runs that have ended, have no more signals, and are entered once and for all.
--   locks:  these rows, skipping those that another transaction has locked
create function heliograph._forget_runs(p_project text, p_name text, p_run_ids text[]) returns void
    language sql as $$
    delete from heliograph.subscription_runs d
     where d.project_id = p_project and d.name = p_name and d.run_id = any (array(
           select s.run_id
             from heliograph.subscriptions n
            cross join unnest(p_run_ids) u (run_id)
             join heliograph.runs r on r.project_id = p_project and r.run_id = u.run_id and r.status = 'ended'
             join heliograph.subscription_runs s on s.project_id = p_project and s.name = p_name
                                                and s.run_id = u.run_id and s.subscriber is null
                                                and s.position >= r.signal_seq
             left join heliograph.run_feed f on f.project_id = p_project and f.run_id = u.run_id
            where n.project_id = p_project and n.name = p_name and coalesce(f.feed_id, 0) <= n.feed_id
              and coalesce(s.run_id <= n.entered_until, true)
            order by s.run_id for update of s skip locked))
$$;
