-- Bells: PostgreSQL has no access rights for the channels of LISTEN and NOTIFY, so a ring there is a keyed hash (S25).

-- _bell_tokens: the names of the notifications of these bells, as heliograph.world.bell_tokens computes them: the first
--   32 hexadecimal digits of an HMAC-SHA256 of the bell, under the key of the project.
create function heliograph._bell_tokens(p_key bytea, p_bells text[]) returns jsonb
    language sql stable as $$
    with pad as (  -- 54 and 92 are the bytes that RFC 2104 combines with the key
        select string_agg(set_byte('\x00', 0, k.byte # 54), ''::bytea order by k.n) as inside,
               string_agg(set_byte('\x00', 0, k.byte # 92), ''::bytea order by k.n) as outside
          from (select n, case when n < 32 then get_byte(p_key, n) else 0 end as byte from generate_series(0, 63) n) k)
    select jsonb_object_agg(b, left(encode(sha256(p.outside || sha256(p.inside || convert_to(b, 'UTF8'))), 'hex'), 32))
      from pad p cross join unnest(p_bells) b
$$;

-- _bell_key: the key of a project's bells.
create function heliograph._bell_key(p_project text) returns bytea
    language sql stable as $$
    select sha256(b.outer_key || sha256(b.inner_key || convert_to(p_project, 'UTF8')))
      from heliograph.bell_secret b
$$;

-- _subscriber_bells: for a login that may only subscribe, {bells: {bell: name}} of the notifications for the signals
--   of these patterns, and for the announcements of their subscribers: a hash of the kind, and one of each segment that
--   is no wildcard. {} for other logins, which have the key. The caller has checked the grants.
create function heliograph._subscriber_bells(p_project text, p_patterns text[]) returns jsonb
    language plpgsql stable as $$
declare
    v_kinds constant text[] := '{signals:,subscribers:}';
    v_hashes jsonb;
begin
    if heliograph._may_read_logs() then
        return '{}';
    end if;
    v_hashes := heliograph._bell_tokens(heliograph._bell_key(p_project), array(
        select k from unnest(v_kinds) k
        union
        select 'segment:' || s from unnest(p_patterns) p cross join unnest(string_to_array(p, ':')) s
         order by 1));
    return jsonb_build_object('bells', (
        select jsonb_object_agg(k || p, concat_ws(':', v_hashes ->> k, (
                   select string_agg(case when s in ('*', '**') then s
                                          else left(v_hashes ->> ('segment:' || s), 10) end, ':' order by n)
                     from unnest(string_to_array(p, ':')) with ordinality u (s, n))))
          from unnest(p_patterns) p cross join unnest(v_kinds) k));
end $$;

-- bell_key: return the key of a project's bells, 64 hexadecimal digits. A program with this key computes the name of
--   each of the project's notifications, as heliograph.world.bell_tokens does. A login that may only subscribe receives
--   {}, and the names of its bells from subscribe: with the key, it could find out whether a run exists whose id it
--   guesses.
--   raises: see _enter
create function heliograph.bell_key(p_project text) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    return case when heliograph._may_read_logs() then to_jsonb(encode(heliograph._bell_key(p_project), 'hex'))
                else '{}' end;
end $$;
