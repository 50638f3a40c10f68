-- Subscriptions: their names, patterns and logins. 88_feed_of_runs.sql describes how they find signals.

-- _reject_positions: null, or the rejection of the first position that is no position in the log of its run. A login
--   that reads no logs learns nothing about runs: it may name the positions of signals that match its patterns.
create function heliograph._reject_positions(p_project text, p_positions jsonb, p_patterns text[]) returns jsonb
    language sql stable as $$
    select case when not heliograph._may_read_logs() then heliograph._rejection('unknown_position', format(
                         'run %s has no signal at position %s that this login may receive with these patterns: start '
                         'after a signal that it has received', left(p.run_id, 80), p.position))
                when r.run_id is null then heliograph._rejection('unknown_run', format(
                         'no run %s in project %s; helio run list shows the newest', left(p.run_id, 80), p_project))
                when p.position > r.signal_seq then heliograph._rejection('unknown_position', format(
                         'run %s has %s signals so far, and no position %s: start after one that exists',
                         p.run_id, r.signal_seq, p.position))
                else heliograph._rejection('pruned_position', format(
                         'the signals of run %s up to %s are pruned: start after %s or later', p.run_id, r.pruned_seq,
                         r.pruned_seq)) end
      from (select key as run_id, value::numeric as position from jsonb_each_text(p_positions)) p
      left join lateral (select x.run_id, x.signal_seq, x.pruned_seq from heliograph.runs x
                          where x.project_id = p_project and x.run_id = p.run_id offset 0) r on true
     where r.run_id is null or p.position > r.signal_seq or p.position < r.pruned_seq
        or not heliograph._may_read_logs() and not exists (
           select from heliograph._signal_at(p_project, heliograph._owner_at(p_project, p.run_id, p.position::bigint),
                                             p.position::bigint) x
            where ':' || (x.signal ->> 'name') ~ any (array(select heliograph._pattern_regex(u)
                                                              from unnest(p_patterns) u)))
     order by p.run_id limit 1
$$;

-- subscribe: create a subscription, or confirm that it exists with these patterns.
--   p_patterns: [pattern], of which a signal matches one. p_since: 'now' begins with the signals that follow, 'start'
--   with the first signal of each run that is not pruned. p_positions: {run_id: position}, for runs that begin after
--   another position. Both count only for a new subscription.
--   Returns {outcome, bells}. bells: only for a login that may only subscribe, {bell: name} of the notifications for
--   these patterns, see bell_key. 'opening': call again until it is open, in a new transaction; it waits for
--   transactions that were writing signals. 'subscribed': it is open from now on. 'duplicate': it exists.
--   'conflict': it exists with other patterns, or another login has created it. 'rejected' with code and message:
--   pattern_not_granted, unknown_run, unknown_position, pruned_position.
--   raises: see _enter; 22023 for an invalid name, pattern, start or position
--   locks:  the subscription
create function heliograph.subscribe(
    p_project text, p_name text, p_patterns jsonb, p_since text, p_positions jsonb, p_now timestamptz
) returns jsonb language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_patterns text[];
    v_known heliograph.subscriptions;
    v_rejection jsonb;
    v_writers text[];
begin
    perform heliograph._check_json(p_patterns);
    perform heliograph._check_json(p_positions);
    perform heliograph._check_subscription(p_name, p_patterns, p_since, p_positions);
    v_patterns := array(select distinct p from jsonb_array_elements_text(p_patterns) p order by p);
    v_rejection := heliograph._reject_ungranted(p_project, v_patterns);
    if v_rejection is not null then
        return v_rejection;
    end if;
    select * into v_known from heliograph.subscriptions s
     where s.project_id = p_project and s.name = p_name order by s.name for update;
    if v_known.patterns <> v_patterns or not heliograph._may_use(v_known.created_by) then
        return jsonb_build_object('outcome', 'conflict');
    elsif v_known.name is not null and v_known.writers is null then
        return jsonb_build_object('outcome', 'duplicate') || heliograph._subscriber_bells(p_project, v_patterns);
    end if;
    v_rejection := heliograph._reject_positions(p_project, p_positions, v_patterns);
    if v_rejection is not null then
        delete from heliograph.subscriptions s where s.project_id = p_project and s.name = p_name;
        return v_rejection;
    elsif v_known.name is null then
        insert into heliograph.subscriptions (project_id, name, patterns, created_by, created_at, feed_id, writers)
        values (p_project, p_name, v_patterns, session_user, p_now,
                -- what commits after the opening is behind it
                coalesce((select max(f.feed_id) from heliograph.run_feed f where f.project_id = p_project), 0), '{}')
        on conflict do nothing;
        return jsonb_build_object('outcome', 'opening');
    end if;
    v_writers := heliograph._writers();
    if v_known.writers <> '{}' then
        v_writers := array(select w from unnest(v_writers) w where w = any (v_known.writers) order by w);
    end if;
    update heliograph.subscriptions s
       set writers = nullif(v_writers, '{}'), entered_until = case p_since when 'start' then '' end
     where s.project_id = p_project and s.name = p_name;
    if v_writers <> '{}' then
        return jsonb_build_object('outcome', 'opening');
    end if;
    perform heliograph._enter_open(p_project, p_name, p_since, p_positions, v_known.feed_id, p_now);
    return jsonb_build_object('outcome', 'subscribed') || heliograph._subscriber_bells(p_project, v_patterns);
end $$;

-- _writers: the other transactions of this database that write to the log now. A transaction has this lock before it
--   looks for subscriptions.
create function heliograph._writers() returns text[]
    language sql volatile as $$
    select array(select l.virtualtransaction from pg_locks l
                  where l.locktype = 'relation' and l.relation = 'heliograph.signals'::regclass
                    and l.database = (select d.oid from pg_database d where d.datname = current_database())
                    and l.mode = 'RowExclusiveLock' and l.pid <> pg_backend_pid()
                  group by l.virtualtransaction order by l.virtualtransaction)
$$;

-- _enter_open: enter the runs whose position is not their start: those that p_positions names and, since now, all that
--   are open, or may follow in the feed.
--   The caller holds the subscription.
create function heliograph._enter_open(
    p_project text, p_name text, p_since text, p_positions jsonb, p_feed_id bigint, p_now timestamptz
) returns void language plpgsql as $$
declare
    v_runs constant text[] := array(
        select p.key from jsonb_each(p_positions) p
        union
        select f.run_id from heliograph.run_feed f
         where f.project_id = p_project and f.feed_id > p_feed_id and p_since = 'now'
        union
        select r.run_id from heliograph.runs r
         where r.project_id = p_project and r.status <> 'ended' and p_since = 'now'
         order by 1);
begin
    insert into heliograph.subscription_runs (project_id, name, run_id, position, has_news, lease_until)
    select p_project, p_name, r.run_id, x.position, x.position < r.signal_seq, p_now
      from heliograph.runs r
     cross join lateral (select coalesce((p_positions -> r.run_id)::bigint, r.signal_seq) as position) x
     where r.project_id = p_project and r.run_id = any (v_runs) order by r.run_id;
end $$;

-- _check_subscription: reject arguments of subscribe that mean nothing.
--   raises: 22023 naming the argument
create function heliograph._check_subscription(p_name text, p_patterns jsonb, p_since text, p_positions jsonb)
    returns void language plpgsql stable as $$
declare
    v_wrong text;
begin
    v_wrong := case
        when not coalesce(p_name ~ '^[A-Za-z0-9_.:-]{1,200}$', false)
        then 'the name of a subscription must be 1 to 200 letters, digits, ''_'', ''-'', ''.'' and '':'''
        when not coalesce(jsonb_typeof(p_patterns) = 'array' and jsonb_array_length(p_patterns) between 1 and 100,
                          false)
        then 'patterns must be a list of 1 to 100 patterns'
        when jsonb_path_exists(p_patterns, '$[*] ? (@.type() != "string")') then 'patterns must be strings'
        when not coalesce(p_since in ('now', 'start'), false) then 'since must be now or start'
        when not coalesce(jsonb_typeof(p_positions) = 'object', false)
          or jsonb_path_exists(p_positions, '$.* ? (@.type() != "number" || @ < 0 || @ > 9000000000000000)')
          or jsonb_path_exists(p_positions, '$.* ? (@.floor() != @)')
        then 'positions must be an object of run ids and positions' end;
    v_wrong := coalesce(v_wrong, (select min(heliograph._wrong_pattern(p))
                                    from jsonb_array_elements_text(p_patterns) p));
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
end $$;

-- _may_use: whether a login may use the subscription of another one: a login that reads logs, the one that created it,
--   and logins that are members of that one. Null for no login.
create function heliograph._may_use(p_created_by name) returns boolean
    language sql stable as $$
    select heliograph._may_read_logs()
        or coalesce(pg_has_role(session_user, to_regrole(quote_ident(p_created_by)), 'member'), p_created_by is null)
$$;

-- _subscription_of: the patterns of a subscription that the login may use, or why it may not: {outcome: 'unknown'} or
--   the rejection of a pattern.
create function heliograph._subscription_of(p_project text, p_name text, out patterns text[], out problem jsonb)
    language plpgsql stable as $$
begin
    select s.patterns into patterns from heliograph.subscriptions s
     where s.project_id = p_project and s.name = p_name and heliograph._may_use(s.created_by);
    problem := case when found then heliograph._reject_ungranted(p_project, patterns)
                    else jsonb_build_object('outcome', 'unknown') end;
end $$;

-- unsubscribe: delete a subscription with its positions. A subscriber that still runs receives no further signals.
--   Returns {outcome}: 'unsubscribed', 'unknown', also if another login has created it, or 'rejected' with code and
--   message for a login without its grants.
--   raises: see _enter
--   locks:  the subscription, and its positions
create function heliograph.unsubscribe(p_project text, p_name text, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_problem jsonb;
begin
    select s.problem into v_problem from heliograph._subscription_of(p_project, p_name) s;
    if v_problem is not null then
        return v_problem;
    end if;
    delete from heliograph.subscriptions where project_id = p_project and name = p_name;
    delete from heliograph.subscription_runs where project_id = p_project and name = p_name;
    return jsonb_build_object('outcome', 'unsubscribed');
end $$;

-- list_subscriptions: list up to p_limit subscriptions of a project after the name p_after, by name: how many runs each
--   still has to read, and how many signals of these runs follow its positions, of all names. taken: the runs that a
--   subscriber has now. Of each subscription, it reads up to 2000 runs: 1000 that have news, those that a subscriber
--   has first, and the 1000 with the lowest ids. is_partial: there are more than 1000, so that the three numbers count
--   the runs that were read.
--   Returns [{name, patterns, created_by, created_at, runs, behind, taken, is_partial}].
--   raises: see _enter; 22023 for a limit that is not between 1 and 1000
create function heliograph.list_subscriptions(p_project text, p_after text, p_limit integer, p_now timestamptz)
    returns jsonb language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    end if;
    return (
        select coalesce(jsonb_agg(to_jsonb(s) || to_jsonb(c) order by s.name), '[]')
          from (select n.name, n.patterns, n.created_by, n.created_at from heliograph.subscriptions n
                 where n.project_id = p_project and n.name > coalesce(p_after, '') order by n.name limit p_limit) s
         cross join lateral (
               select count(*) filter (where r.status <> 'ended' or r.signal_seq > x.position) as runs,
                      coalesce(sum(r.signal_seq - x.position), 0) as behind,
                      count(*) filter (where x.subscriber is not null and x.lease_until > p_now) as taken,
                      exists (select from heliograph.subscription_runs m
                               where m.project_id = p_project and m.name = s.name
                               order by m.run_id offset 1000 limit 1) as is_partial
                 from (
                      (select n.run_id, n.position, n.subscriber, n.lease_until from heliograph.subscription_runs n
                        where n.project_id = p_project and n.name = s.name and n.has_news
                        order by n.lease_until desc, n.run_id desc limit 1000)
                      union
                      (select l.run_id, l.position, l.subscriber, l.lease_until from heliograph.subscription_runs l
                        where l.project_id = p_project and l.name = s.name order by l.run_id limit 1000)) x
                cross join lateral (select y.status, y.signal_seq from heliograph.runs y
                                     where y.project_id = p_project and y.run_id = x.run_id offset 0) r) c);
end $$;
