-- Bells: PostgreSQL has no access rights for the channels of LISTEN and NOTIFY, so a ring there is a keyed hash (S25).

-- bell_key: return the key of a project's bells, 64 hexadecimal digits. A program with this key computes the name of
--   each of the project's notifications, as heliograph.world.bell_tokens does.
--   raises: see _enter
create function heliograph.bell_key(p_project text) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    return (
        select to_jsonb(encode(sha256(b.outer_key || sha256(b.inner_key || convert_to(p_project, 'UTF8'))), 'hex'))
          from heliograph.bell_secret b);
end $$;
