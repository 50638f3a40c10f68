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

-- _pattern_names: the names, with ':' in front, that decide whether another pattern contains this one: one for each
--   number of segments that each ** stands for, with '~' for each segment of a wildcard. No pattern has a '~', so
--   where another one matches it, it matches any segment. A '~' is as short as a segment can be, so all names of the
--   allowed lengths have their example here. The longest first.
create function heliograph._pattern_names(p_pattern text) returns text[]
    language sql immutable as $$
    select array_agg(n.name order by length(n.name) desc, n.name)
      from (select split_part(t, ':#', 1) || repeat(':~', a) || split_part(t, ':#', 2) || repeat(':~', b)
                   || split_part(t, ':#', 3) as name
              from (select ':' || replace(replace(p_pattern, '**', '#'), '*', '~') as t) t
             cross join generate_series(0, case when t like '%:#%' then 16 else 0 end) a
             cross join generate_series(0, case when t like '%:#%:#%' then 16 - a else 0 end) b
             group by 1) n
     where length(n.name) between 2 and 201 and cardinality(string_to_array(n.name, ':')) <= 17
$$;

-- _first_outside: the first pattern that none of the grants contains as a whole, or null. Exact. It compares at most
--   136 names with each grant for each pattern, and usually one: the longest rarely matches by chance.
create function heliograph._first_outside(p_patterns text[], p_grants text[]) returns text
    language sql stable as $$
    with named as materialized (
        select p.pattern, p.n, heliograph._pattern_names(p.pattern) as names
          from unnest(p_patterns) with ordinality p (pattern, n) order by p.n
    ), contained as materialized (  -- grant by grant, because PostgreSQL keeps only 32 compiled expressions
        select c.n
          from (select heliograph._pattern_regex(g) as regex from unnest(p_grants) g offset 0) r
         cross join lateral (
               select x.n from named x
                where x.names[1] ~ r.regex and not exists (select from unnest(x.names) u where u !~ r.regex)
               offset 0) c
         group by c.n order by c.n
    )
    select x.pattern from named x where not exists (select from contained c where c.n = x.n) order by x.n limit 1
$$;

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
    language plpgsql stable as $$
declare
    v_grants text[];
    v_others text[];
begin
    if heliograph._may_read_logs() then
        return null;
    end if;
    v_grants := array(select g.pattern from heliograph.signal_grants g
                       where g.project_id = p_project and g.role_name = session_user order by g.pattern);
    -- usually a login asks for its grants, which takes no comparison of patterns
    v_others := array(select p.pattern from unnest(p_patterns) with ordinality p (pattern, n)
                     where p.pattern <> all (v_grants) order by p.n);
    return case when v_others <> '{}' then heliograph._first_outside(v_others, v_grants) end;
end $$;

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
