-- Patterns over signal names: `*` stands for one segment, `**` for any number of them. Python matches the subscriptions
-- of agents (heliograph.signals.pattern); these functions decide what the store delivers, and what a grant contains.

-- _wrong_pattern: null, or the problem of a pattern.
create function heliograph._wrong_pattern(p_pattern text) returns text
    language sql stable as $$
    select case
        when coalesce(p_pattern, '') = '' then 'a pattern is empty: write a name, or a pattern such as order:*'
        when length(p_pattern) > 200 or p_pattern !~ '^[A-Za-z0-9_.*-]+(:[A-Za-z0-9_.*-]+)*$'
          or p_pattern ~ '[^:*]\*|\*[^:*]|\*\*\*'
        then 'a pattern has at most 200 letters, digits, ''_'', ''-'', ''.'' in segments joined by '':'', where * is a '
             'whole segment and ** any number of them'
        when cardinality(string_to_array(p_pattern, ':')) > 16
          or cardinality(array_positions(string_to_array(p_pattern, ':'), '**')) > 2
        then 'a pattern has at most 16 segments and two **: use several patterns' end
$$;

-- _pattern_regex: the regular expression that matches ':' and a name if the pattern matches the name.
create function heliograph._pattern_regex(p_pattern text) returns text
    language sql immutable as $$
    select '^' || string_agg(case s when '**' then '(?::[^:]+)*' when '*' then ':[^:]+'
                                    else ':' || replace(s, '.', '\.') end, '' order by n) || '$'
      from unnest(string_to_array(p_pattern, ':')) with ordinality u (s, n)
$$;

-- _signal_bell: the bell of a pattern, as heliograph.world.signal_bells computes it: the pattern itself, if it
--   has no wildcard; segment:*, if its first segment is not one; *:segment of its last segment that is not one; or *.
create function heliograph._signal_bell(p_pattern text) returns text
    language sql immutable as $$
    select case when p_pattern !~ '\*' then p_pattern
                when split_part(p_pattern, ':', 1) !~ '\*' then split_part(p_pattern, ':', 1) || ':*'
                else coalesce((select '*:' || s from unnest(string_to_array(p_pattern, ':')) with ordinality u (s, n)
                                where s !~ '\*' order by n desc limit 1), '*') end
$$;

-- _pattern_closure: the states of a pattern that are reached without reading a segment: behind each ** that is reached.
--   A set of states is a number: bit n is set if the first n segments of the pattern are matched.
create function heliograph._pattern_closure(p_segments text[], p_states integer) returns integer
    language plpgsql immutable as $$
declare
    v_states integer := p_states;
begin
    for n in 1 .. cardinality(p_segments) loop
        if p_segments[n] = '**' and v_states & (1 << (n - 1)) <> 0 then
            v_states := v_states | (1 << n);
        end if;
    end loop;
    return v_states;
end $$;

-- _pattern_step: the states of a pattern after one more segment of a name. p_segment null: a segment that no pattern
--   names.
create function heliograph._pattern_step(p_segments text[], p_states integer, p_segment text) returns integer
    language plpgsql immutable as $$
declare
    v_states integer := 0;
begin
    for n in 1 .. cardinality(p_segments) loop
        if p_states & (1 << (n - 1)) = 0 then
            continue;
        elsif p_segments[n] = '**' then
            v_states := v_states | (1 << (n - 1));
        elsif p_segments[n] = '*' or coalesce(p_segments[n] = p_segment, false) then
            v_states := v_states | (1 << n);
        end if;
    end loop;
    return heliograph._pattern_closure(p_segments, v_states);
end $$;

-- _is_within: whether every name that p_inner matches is matched by p_outer. Exact: it follows both patterns over all
--   names of at most 16 segments and 200 characters at once. Names differ only in the segments that the patterns name;
--   all others are like one segment of one character. For each pair of sets of states it keeps the shortest name.
create function heliograph._is_within(p_inner text, p_outer text) returns boolean
    language plpgsql immutable as $$
declare
    v_inner constant text[] := string_to_array(p_inner, ':');
    v_outer constant text[] := string_to_array(p_outer, ':');
    v_segments constant text[] := array(select distinct s from unnest(v_inner || v_outer) s where s not in ('*', '**')
                                         order by s) || null::text;
    v_inners integer[] := array[heliograph._pattern_closure(v_inner, 1)];
    v_outers integer[] := array[heliograph._pattern_closure(v_outer, 1)];
    v_lengths integer[] := array[-1];  -- without the colon before the first segment
begin
    if p_inner = p_outer or p_outer = '**' then
        return true;
    end if;
    for v_count in 1 .. 16 loop
        select array_agg(i order by i, o), array_agg(o order by i, o), array_agg(l order by i, o)
          into v_inners, v_outers, v_lengths
          from (select i, o, min(l) as l
                  from (select heliograph._pattern_step(v_inner, w.i, s.s) as i,
                               heliograph._pattern_step(v_outer, w.o, s.s) as o,
                               w.l + 1 + coalesce(length(s.s), 1) as l
                          from unnest(v_inners, v_outers, v_lengths) w (i, o, l)
                         cross join unnest(v_segments) s (s)) n
                 where i <> 0 and l <= 200 group by i, o) n;
        exit when v_inners is null;
        if exists (select from unnest(v_inners, v_outers) w (i, o)
                    where i & (1 << cardinality(v_inner)) <> 0 and o & (1 << cardinality(v_outer)) = 0) then
            return false;
        end if;
    end loop;
    return true;
end $$;

-- _may_read_logs: whether the login reads whole logs anyway: an operator, or a login with such a role. Other logins
--   receive the signals that grants name.
create function heliograph._may_read_logs() returns boolean
    language sql stable as $$
    select pg_has_role(session_user, current_user, 'member') or exists (
        select from pg_roles r where r.rolname in ('heliograph_worker', 'heliograph_api', 'heliograph_reader')
           and pg_has_role(session_user, r.oid, 'member'))
$$;

-- _first_ungranted: the first pattern that no grant of the login contains as a whole, or null.
create function heliograph._first_ungranted(p_project text, p_patterns text[]) returns text
    language sql stable as $$
    select p.pattern
      from unnest(p_patterns) with ordinality p (pattern, n)
     where not heliograph._may_read_logs() and not case
           -- usually a login asks for its grants, and a comparison of two patterns takes up to milliseconds
           when exists (select from heliograph.signal_grants g
                         where g.project_id = p_project and g.role_name = session_user
                           and g.pattern in (p.pattern, '**')) then true
           else exists (select from heliograph.signal_grants g
                         where g.project_id = p_project and g.role_name = session_user
                           and heliograph._is_within(p.pattern, g.pattern)) end
     order by p.n limit 1
$$;

-- _reject_ungranted: null, or the rejection of a login that asks for signals beyond its grants. The pattern is rejected
--   as a whole: the answer does not reveal which part of it is granted.
create function heliograph._reject_ungranted(p_project text, p_patterns text[]) returns jsonb
    language sql stable as $$
    select heliograph._rejection('pattern_not_granted', format(
               'the pattern %s is wider than what this login may receive in project %s: ask for a granted pattern, or '
               'let an operator grant it: helio db grant LOGIN --project %s --signals ''%s''',
               u, p_project, p_project, u))
      from heliograph._first_ungranted(p_project, p_patterns) u where u is not null
$$;

-- grant_signals: let a login subscribe to the signals of a project that a pattern matches. Only an operator may call
--   this.
--   Returns 'granted' or 'duplicate'.
--   raises: see _enter; 42704 for a role that does not exist; 22023 for an invalid pattern
create function heliograph.grant_signals(p_project text, p_role text, p_pattern text, p_now timestamptz) returns text
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    if heliograph._wrong_pattern(p_pattern) is not null then
        raise exception using errcode = '22023', message = heliograph._wrong_pattern(p_pattern);
    elsif not exists (select from pg_roles where rolname = p_role) then
        raise exception using errcode = '42704', message = format('there is no role "%s"', p_role);
    end if;
    insert into heliograph.signal_grants (project_id, role_name, pattern, granted_by, granted_at)
    values (p_project, p_role, p_pattern, session_user, p_now) on conflict do nothing;
    return case when found then 'granted' else 'duplicate' end;
end $$;

-- revoke_signals: remove such a grant. Running subscribers of the login receive no further signals. Only an operator
--   may call this.
--   Returns 'revoked' or 'unknown'.
--   raises: see _enter
--   locks:  the row
create function heliograph.revoke_signals(p_project text, p_role text, p_pattern text) returns text
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    delete from heliograph.signal_grants
     where project_id = p_project and role_name = p_role and pattern = p_pattern;
    return case when found then 'revoked' else 'unknown' end;
end $$;

-- list_signal_grants: list the patterns that logins may subscribe to, by login and pattern. A login without operator
--   rights sees its own.
--   Returns [{login, pattern, granted_by, granted_at}].
--   raises: see _enter
create function heliograph.list_signal_grants(p_project text) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object('login', g.role_name, 'pattern', g.pattern,
                                                     'granted_by', g.granted_by, 'granted_at', g.granted_at)
                                  order by g.role_name, g.pattern), '[]')
          from heliograph.signal_grants g
         where g.project_id = p_project
           and (g.role_name = session_user or pg_has_role(session_user, current_user, 'member')));
end $$;
