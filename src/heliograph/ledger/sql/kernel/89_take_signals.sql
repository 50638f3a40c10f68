-- Delivery: subscribers take the signals of runs, and record what they have processed.

-- take_signals: take signals of up to p_limit runs for one subscriber: of each run the next ones after its position, at
--   most 200 of the log. They are hidden from other subscribers until p_lease_seconds have passed or record_positions
--   has released the run. Runs that waited longest come first. Signals that match no pattern only raise the position.
--   The payloads of all runs together have at most 8 MiB, or one signal more.
--   Returns {outcome, runs, more, due_seconds}. 'taken': runs is [{run_id, after, upto, pruned, signals}], signals as
--   in read_log; upto: the position after them; pruned: how many signals were deleted before this subscription had
--   them. more: call again at once. due_seconds: after this time a run may be free that has signals and is leased now,
--   or locked by another transaction; null: none is. 'unknown': there is no such subscription, or another login has
--   created it. 'rejected' with code and message: pattern_not_granted, also after a grant was revoked.
--   raises: see _enter; 22023 for a limit that is not between 1 and 1000, a lease that is not between 0 and a day, and
--           a subscriber without 1 to 200 bytes
--   locks:  the subscription, unless another subscriber has it; the positions that are taken or raised, skipping those
--           that another transaction has locked
create function heliograph.take_signals(
    p_project text, p_name text, p_subscriber text, p_limit integer, p_lease_seconds float8, p_now timestamptz
) returns jsonb language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_patterns text[];
    v_problem jsonb;
    v_has_entered boolean;
    v_after text;
    v_is_held boolean := false;
    v_answer jsonb;
begin
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    elsif not coalesce(p_lease_seconds between 0 and 86400, false) then
        raise exception using errcode = '22023',
            message = format('lease_seconds must be between 0 and 86400, not %s', p_lease_seconds);
    elsif not coalesce(octet_length(p_subscriber) between 1 and 200, false) then
        raise exception using errcode = '22023', message = 'the name of a subscriber must have 1 to 200 bytes';
    end if;
    select s.patterns, s.problem into v_patterns, v_problem from heliograph._subscription_of(p_project, p_name) s;
    if v_problem is not null then
        return v_problem;
    end if;
    v_has_entered := heliograph._enter_news(p_project, p_name, p_now);
    v_answer := heliograph._take_runs(p_project, p_name, v_patterns, p_subscriber, p_limit, p_lease_seconds, p_now);
    if v_answer -> 'runs' = '[]' and v_answer ->> 'more' = 'false' then
        -- the subscriber has time: for older runs, or for those that another one enters now
        select s.entered_until into v_after from heliograph.subscriptions s
         where s.project_id = p_project and s.name = p_name and s.writers is null;
        if v_has_entered and v_after is not null then
            perform heliograph._enter_old(p_project, p_name, v_after, p_now);
        end if;
        delete from heliograph.subscription_runs d  -- prune deleted the run while a search entered it
         where d.project_id = p_project and d.name = p_name and d.run_id = any (array(
               select s.run_id from heliograph.subscription_runs s
                where s.project_id = p_project and s.name = p_name and s.has_news and s.lease_until < p_now
                  and (select r.run_id from heliograph.runs r
                        where r.project_id = p_project and r.run_id = s.run_id) is null
                order by s.lease_until, s.run_id limit 1000 for update skip locked));
        v_answer := v_answer || jsonb_build_object('more', v_after is not null or not v_has_entered);
        -- by another transaction, which may find no news that this call has seen. p_now: not a run that this call has
        -- passed
        v_is_held := exists (
            select from heliograph.subscription_runs s
             where s.project_id = p_project and s.name = p_name and s.has_news and s.lease_until < p_now);
    end if;
    return v_answer || jsonb_build_object('outcome', 'taken', 'due_seconds', case when v_is_held then 0.05 else (
        select extract(epoch from s.lease_until - p_now) from heliograph.subscription_runs s
         where s.project_id = p_project and s.name = p_name and s.has_news and s.lease_until > p_now
         order by s.lease_until limit 1) end);
end $$;

-- _take_runs: take the runs that waited longest, and look at up to 1000: {runs, more}, as of take_signals. It compares
--   up to 500,000 names with a pattern, and the rest of their page, which takes about half a second.
create function heliograph._take_runs(
    p_project text, p_name text, p_patterns text[], p_subscriber text, p_limit integer, p_lease_seconds float8,
    p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    v_run record;
    v_page jsonb;
    v_is_empty boolean;
    v_taken jsonb := '[]';
    v_bytes integer := 8388608;
    v_seen integer := 0;
    v_left bigint := 500000;  -- names to compare with a pattern
    v_more boolean := false;
begin
    for v_run in
        select s.run_id, s.position, r.signal_seq, r.pruned_seq, greatest(s.position, r.pruned_seq) as after
          from heliograph.subscription_runs s
         cross join lateral (select x.signal_seq, x.pruned_seq from heliograph.runs x
                              where x.project_id = p_project and x.run_id = s.run_id offset 0) r
         where s.project_id = p_project and s.name = p_name and s.has_news and s.lease_until <= p_now
         order by s.lease_until, s.run_id limit 1000 for update of s skip locked
    loop
        v_page := heliograph._signal_page(p_project, v_run.run_id, v_run.after, p_patterns, v_bytes);
        v_is_empty := v_page -> 'signals' = '[]';
        -- a page without a matching signal is followed by another one; a log without signals, as after damage, by none
        v_more := v_more or v_is_empty and (v_page ->> 'upto')::bigint > v_run.after
                        and (v_page ->> 'upto')::bigint < v_run.signal_seq;
        if not v_is_empty then
            v_bytes := v_bytes - (v_page ->> 'bytes')::integer;
            v_taken := v_taken || (v_page - 'bytes' || jsonb_build_object(
                'run_id', v_run.run_id, 'after', v_run.position,
                'pruned', greatest(v_run.pruned_seq - v_run.position, 0)));
        end if;
        perform heliograph._move_position(p_project, p_name, v_run.run_id,
            case when v_is_empty then (v_page ->> 'upto')::bigint else v_run.position end,
            case when not v_is_empty then p_subscriber end,
            p_now + make_interval(secs => case when v_is_empty then 0 else p_lease_seconds end),
            (v_page ->> 'upto')::bigint);
        v_seen := v_seen + 1;
        v_left := v_left - ((v_page ->> 'upto')::bigint - v_run.after) * cardinality(p_patterns);
        exit when v_bytes <= 0 or v_left <= 0 or jsonb_array_length(v_taken) = p_limit;
    end loop;
    return jsonb_build_object('runs', v_taken, 'more', v_more or v_seen = 1000 or v_bytes <= 0 or v_left <= 0
                                                       or jsonb_array_length(v_taken) = p_limit);
end $$;

-- _page_length: how many signals of a run's log after a position a search reads at once: those of the next commits, of
--   which all but the last have together less than 1 MiB as they are stored, and at most 200. The size of a commit is
--   known without reading it.
create function heliograph._page_length(p_project text, p_run_id text, p_after bigint) returns integer
    language sql stable as $$
    select coalesce(least(200, max(c.seq + c.count - 1 - p_after) filter (where c.before < 1048576)), 200)::integer
      from (select s.seq, s.count, sum(s.size) over (order by s.seq) - s.size as before
              from heliograph._log_parts(p_project, p_run_id) p
             cross join lateral (
                   select x.seq, x.count, pg_column_size(x.entries) as size from heliograph.signals x
                    where x.project_id = p_project and x.run_id = p.run_id
                      and x.seq > greatest(p_after, p.after) and x.seq <= least(p.upto, p_after + 200)
                    order by x.seq) s) c
$$;

-- _signal_page: the signals that match a pattern among the next ones of a run's log after a position (_page_length), up
--   to p_bytes but at least one: {signals, upto, bytes}. upto: the position up to which the page has all of them.
create function heliograph._signal_page(
    p_project text, p_run_id text, p_after bigint, p_patterns text[], p_bytes integer
) returns jsonb language sql stable as $$
    with page as materialized (
        select l.* from heliograph.read_log(p_project, p_run_id, coalesce(p_after, 0), heliograph._page_length(
                            p_project, p_run_id, coalesce(p_after, 0))) l order by l.seq
    ), found as materialized (  -- pattern by pattern, because PostgreSQL keeps only 32 compiled expressions
        select distinct n.seq
          from (select heliograph._pattern_regex(u) as regex from unnest(p_patterns) u offset 0) r
         cross join lateral (select x.seq from page x where ':' || x.name ~ r.regex offset 0) n order by n.seq
    ), matched as materialized (  -- 500 bytes for the ids and names
        select p.*, sum(500 + octet_length(p.payload::text)) over (order by p.seq) as until,
               row_number() over (order by p.seq) = 1 as is_first
          from page p
         where p.seq = any (array(select f.seq from found f))
    )
    select jsonb_build_object(
        'signals', coalesce(jsonb_agg(to_jsonb(m)
                                      - '{project_id,commit_seq,recorded_at,is_deferred,until,is_first}'::text[]
                                      order by m.seq) filter (where m.is_first or m.until <= p_bytes), '[]'),
        'upto', coalesce(min(m.seq) filter (where not m.is_first and m.until > p_bytes) - 1,
                         (select max(seq) from page), coalesce(p_after, 0)),
        'bytes', coalesce(max(m.until) filter (where m.is_first or m.until <= p_bytes), 0))
      from matched m
$$;

-- _move_position: set the position of a run and its subscriber, which has taken the signals up to p_upto; p_subscriber
--   null: release it, and forget it if it has no more signals. Whether signals follow is read under the row's lock: a
--   later commit is behind in the feed.
--   The caller holds the row, since an earlier statement.
create function heliograph._move_position(
    p_project text, p_name text, p_run_id text, p_position bigint, p_subscriber text, p_until timestamptz,
    p_upto bigint
) returns void language plpgsql as $$
begin
    update heliograph.subscription_runs s
       set position = p_position, subscriber = p_subscriber, lease_until = p_until,
           upto = case when p_subscriber is not null then p_upto end,
           has_news = p_subscriber is not null or p_position < (
               select r.signal_seq from heliograph.runs r where r.project_id = p_project and r.run_id = p_run_id)
     where s.project_id = p_project and s.name = p_name and s.run_id = p_run_id;
    if p_subscriber is null then
        perform heliograph._forget_runs(p_project, p_name, array[p_run_id]);
    end if;
end $$;

-- record_positions: record what subscribers have processed of the runs that they have taken. One call may be for many
--   subscriptions, so that a process renews all of its leases in one commit.
--   p_items: [{name, subscriber, run_id, position, lease_seconds, delay_seconds}]. name: the subscription. position:
--   the last signal that was processed, at most upto of take_signals. lease_seconds: keep the run for so long; null:
--   release it. delay_seconds: of a released run: nobody takes it before. Of several items for one run, the greatest
--   position, the longest lease and the longest delay count; if one of them releases it, it is released.
--   Returns [{run_id, outcome}] in the order of p_items: 'ok', or 'stale' if another subscriber may have the run, the
--   subscription is gone, or another login has created it; then nothing changes. 'rejected' with code and message for
--   a position after the signals that the subscriber has taken (unknown_position): nothing changes for this item.
--   raises: see _enter; 22023 for an invalid item
--   locks:  the positions of these runs, in ascending order of name and run
create function heliograph.record_positions(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_may_use_all boolean;
    v_each record;
    v_results jsonb[] := '{}';  -- by the number of the item; null: stale
    v_rows tid[] := '{}';       -- by the number of the valid item, as the next three
    v_positions bigint[] := '{}';
    v_leases float8[] := '{}';  -- null: release
    v_delays float8[] := '{}';
begin
    perform heliograph._check_positions(p_items);
    v_may_use_all := heliograph._may_read_logs();
    for v_each in
        select i.n, i.name, i.run_id, greatest(s.position, i.position) as position, s.upto, s.ctid as at, i.lease,
               i.delay
          from (select e.n::integer, e.item ->> 'name' collate "C" as name, e.item ->> 'run_id' collate "C" as run_id,
                       e.item ->> 'subscriber' as subscriber, (e.item -> 'position')::bigint as position,
                       -- in microseconds, as times are: 1e-400 is no float8
                       round((e.item -> 'lease_seconds')::numeric, 6)::float8 as lease,
                       round((e.item -> 'delay_seconds')::numeric, 6)::float8 as delay
                  from jsonb_array_elements(p_items) with ordinality e (item, n)
                 order by 2, 3, 5) i
         cross join lateral (  -- by the key, whatever the planner believes about the number of items
               select x.ctid, x.position, x.upto from heliograph.subscription_runs x
                where x.project_id = p_project and x.name = i.name and x.run_id = i.run_id
                  and x.subscriber = i.subscriber order by x.run_id for update) s
         where v_may_use_all or (select heliograph._may_use(n.created_by) from heliograph.subscriptions n
                                  where n.project_id = p_project and n.name = i.name)
         order by i.name, i.run_id, i.position
    loop
        if v_each.position > v_each.upto then
            v_results[v_each.n] := heliograph._rejection('unknown_position', format(
                'subscription %s has taken the signals of run %s up to %s, so it cannot have processed %s',
                v_each.name, v_each.run_id, v_each.upto, v_each.position));
            continue;
        end if;
        v_results[v_each.n] := '{"outcome": "ok"}';
        v_rows := v_rows || v_each.at;
        v_positions := v_positions || v_each.position;
        v_leases := v_leases || v_each.lease;
        v_delays := v_delays || v_each.delay;
    end loop;
    -- after the loop, whose query does not find a row again that the loop has changed
    update heliograph.subscription_runs s
       set position = k.position, lease_until = p_now + make_interval(secs => k.lease)
      from (select u.at, max(u.position) as position, max(u.lease) as lease
              from unnest(v_rows, v_positions, v_leases) u (at, position, lease)
             group by u.at having count(*) = count(u.lease)) k where s.ctid = k.at;
    perform heliograph._move_position(p_project, s.name, s.run_id, k.position, null,
                                      p_now + make_interval(secs => k.delay), null)
       from (select u.at, max(u.position) as position, coalesce(max(u.delay), 0) as delay
               from unnest(v_rows, v_positions, v_leases, v_delays) u (at, position, lease, delay)
              group by u.at having count(*) > count(u.lease)) k
       join heliograph.subscription_runs s on s.ctid = k.at;
    return (select coalesce(jsonb_agg(jsonb_build_object('run_id', i.item -> 'run_id')
                                      || coalesce(v_results[i.n], '{"outcome": "stale"}') order by i.n), '[]')
              from jsonb_array_elements(p_items) with ordinality i (item, n));
end $$;

-- _check_positions: reject items of record_positions that mean nothing.
--   raises: 22023 naming the field
create function heliograph._check_positions(p_items jsonb) returns void
    language plpgsql stable as $$
begin
    perform heliograph._check_json(p_items);
    if exists (select from jsonb_array_elements(p_items) i where jsonb_typeof(i) <> 'object') then
        raise exception using errcode = '22023', message = 'p_items[] must be an object';
    end if;
    perform heliograph._check_keys('p_items[]', p_items,
                                   '{name,subscriber,run_id,position,lease_seconds,delay_seconds}');
    perform heliograph._check_type('p_items[]', p_items, 'name', 'string');
    perform heliograph._check_type('p_items[]', p_items, 'subscriber', 'string');
    perform heliograph._check_type('p_items[]', p_items, 'run_id', 'string');
    if jsonb_path_exists(p_items, '$[*] ? (!exists (@.position) || @.position.type() != "number" || @.position < 0)')
       or jsonb_path_exists(p_items, '$[*].position ? (@ > 9000000000000000 || @.floor() != @)')
       or jsonb_path_exists(p_items, '$[*].keyvalue() ? (@.key == "lease_seconds" || @.key == "delay_seconds").value '
                                     '? (@.type() != "null" && (@.type() != "number" || @ < 0 || @ > 86400))') then
        raise exception using errcode = '22023', message =
            'p_items[] must have a whole position, and seconds between 0 and 86400';
    end if;
end $$;
