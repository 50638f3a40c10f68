-- Wires: message buses on which a project publishes its events: postgres, which is the channel heliograph_events, or
-- nats. A project without a wire has no subscribers, so its events need no publication. If only some workers had a
-- wire, the others would publish an event without it and mark the event as done. So a worker with NATS declares it,
-- and from then on only workers with this wire publish. An operator declares postgres, which every worker has.

-- declare_wire: record that a project publishes its events on a wire, postgres or nats. From then on only workers with
--   this wire publish. The event of each turn that ends after this call is published.
--   Answers 'declared' or 'duplicate'.
--   raises: see _enter; 22023 for a name without 1 to 200 bytes
--   locks:  for a new wire the project's _wire_lock, which waits for its endings in progress; then the new row
create function heliograph.declare_wire(p_project text, p_wire text, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    if not coalesce(octet_length(p_wire) between 1 and 200, false) then
        raise exception using errcode = '22023', message = 'the name of a wire must have 1 to 200 bytes';
    end if;
    if exists (select from heliograph.project_wires where project_id = p_project and wire = p_wire) then
        return to_jsonb('duplicate'::text);
    end if;
    perform pg_advisory_xact_lock(heliograph._wire_lock(p_project));
    insert into heliograph.project_wires (project_id, wire, declared_at) values (p_project, p_wire, p_now)
        on conflict do nothing;
    return to_jsonb(case when found then 'declared'::text else 'duplicate' end);
end $$;

-- _wire_lock: the key of the advisory lock of a project's wires; see _blob_lock. Endings share it to their commit, so a
--   declaration waits for those that have not seen its wire. Endings never wait for it, because a login of any project
--   can hold it: without it, an ending writes its event for the relay (decision 0121).
create function heliograph._wire_lock(p_project text) returns bigint
    language sql immutable as $$
    select hashtextextended(jsonb_build_array('heliograph.project_wires', p_project)::text, 0)
$$;

-- forget_wire: remove a wire of a project: workers without it may publish its events again. The events of turns that
--   end afterwards reach the wires that remain; without one they are not published. A worker that has declared the wire
--   declares it again only when it starts. Only an operator may call this.
--   Answers 'forgotten' or 'unknown'.
--   raises: see _enter
--   locks:  the row
create function heliograph.forget_wire(p_project text, p_wire text) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    delete from heliograph.project_wires where project_id = p_project and wire = p_wire;
    return to_jsonb(case when found then 'forgotten'::text else 'unknown' end);
end $$;

-- _wires: the names of the project's wires, as a list.
create function heliograph._wires(p_project text) returns jsonb
    language sql stable as $$
    select coalesce(jsonb_agg(wire order by wire), '[]') from heliograph.project_wires where project_id = p_project
$$;

-- wire_overview: the wires that projects have declared
create view heliograph.wire_overview as
select w.project_id, w.wire, w.declared_at from heliograph.project_wires w;
