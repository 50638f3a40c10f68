-- How the functions of this kernel are written.
--
-- One call handles a batch. Its statements work on all items at once, because each statement costs more than a row.
-- * Look-up by key: `cross join lateral (select x.ctid as at, .. where <whole key> offset 0)`. `offset 0` keeps the
--   planner from merging the subquery into a join, so it always uses the primary key, with any statistics.
-- * Change in place: `update .. where t.ctid = found.at`. The row was just found, and its lock keeps it in place. Rows
--   that another transaction may move, such as those of the outbox, are updated by key instead.
-- * One statement writes to several tables: `with .. insert .. returning`. Each part sees the rows as they were before
--   the statement. `as materialized` evaluates a part once.
-- * Several statements share the rows that one of them found as arrays: `select v_turn_id[n], v_call_id[n], .. from
--   generate_subscripts(v_turn_id, 1) n`. `unnest` of several arrays costs more (decision 0101).
-- * PostgreSQL inlines a table function (`language sql`, stable or immutable, no settings) into the calling query. It
--   inlines a scalar function only if its body is no more volatile than declared, and if no argument that is used twice
--   is expensive or volatile. Other functions cost a call per row. Private functions therefore have no settings.
-- * Loop only if an item depends on the items before it, if each item needs its own savepoint, or if the call is rare.
--   A batch in which items meet is divided into rounds (_rounds), and each round is handled at once.
-- * `v_project` is the first variable of a public function, so the initial values of the others are read within the
--   project, too. Few functions read it again.
--
-- What the first word of a private name promises:
-- * _wrong_x: null, or a message about x. _is_usual_x accepts most x in one short expression, and _x_problem
--   looks at the others (decision 0118).
-- * _check_x: raises an error for an invalid x, mostly 22023. `_check_options` and `_check_turns` also create
--   budgets.
-- * _reject_x: null, or the answer of an item that is not carried out, mostly 'rejected' with a code. _reject_waits,
--   _reject_circuit and _reject_rate are never null: their callers have compared the limit.
-- * _read_x finds what decides about items, with the rows that they change; _judge_x decides, too. `head_at`,
--   `turn_at`, `run_at`, `lease_at` and `wait_at` are such rows, by their ctid.
-- * _lock_x takes locks. _sweep_x handles one candidate of a sweep. _prune_x is a part of prune.

-- Projects: every public function enters one before anything else. Row security compares rows with it
--   (96_roles.sql).

-- _enter: the first act of every public function. From here to the end of the transaction no statement of the kernel
--   sees or writes a row of another project (S1). Returns the project.
--   raises: 22023 for a project without a name, or with one that no key can hold; 42501 for a login that is bound to
--           others, in the same words whether that project exists or not; 57P03 for a program of an older
--           version
create function heliograph._enter(p_project text) returns text
    language plpgsql as $$
declare
    v_is_granted boolean;
begin
    -- A program of a version before migration 0015 may still run during an upgrade. It cannot decode what this kernel
    -- answers, and would end the turns that it claims as failed. It retries calls that fail with this code. PgBouncer
    -- may add host and port to the name.
    if current_setting('application_name') ~ '^heliograph( tools)?( - .*:[0-9]+)?$' then
        raise exception using errcode = '57P03', message =
            'the database was upgraded and this program is older: stop it and start the version that was installed',
            hint = 'Versions before migration 0015 name their sessions so. A program of yours needs another '
                   'application_name.';
    end if;
    if not coalesce(octet_length(p_project) between 1 and 200, false) then
        raise exception using errcode = '22023', message = 'the name of a project must have 1 to 200 bytes';
    end if;
    select bool_or(g.project_id = p_project) into v_is_granted
      from heliograph.project_grants g where g.role_name = session_user;
    if not v_is_granted then  -- null: the login has no grants
        raise exception using errcode = '42501', message = format('not_found: no project %s', p_project);
    end if;
    return set_config('heliograph.project', p_project, true);
end $$;

-- _enter_at: enter a project at a time that the caller names. A service may name times within a day of the server's
--   clock: rows with a far time would break every reader for good. Operators, who own the functions or
--   are members of their owner, may name any time; so may tests and simulators. No other kernel function compares with
--   a clock. A near time reads no catalog.
--   raises: see _enter; 22023 for a null or infinite time, or one that is far from the server's
create function heliograph._enter_at(p_project text, p_now timestamptz) returns text
    language plpgsql as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    if not coalesce(p_now between now() - interval '1 day' and now() + interval '1 day', false)
       and not pg_has_role(session_user, current_user, 'member') then
        raise exception using errcode = '22023',
        message = 'p_now is too far from the server''s time, more than a day: pass clock_timestamp()';
    end if;
    return v_project;
end $$;

-- grant_project: bind a login to a project. A login without grants may use every project; from its first grant on it
--   may use only granted ones. Only an operator may call this.
--   Returns 'granted' or 'duplicate'.
--   raises: see _enter; 42704 for a role that does not exist
create function heliograph.grant_project(p_project text, p_role text, p_now timestamptz) returns text
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    if not exists (select from pg_roles where rolname = p_role) then
        raise exception using errcode = '42704', message = format('there is no role "%s"', p_role);
    end if;
    insert into heliograph.project_grants (project_id, role_name, granted_by, granted_at)
    values (p_project, p_role, session_user, p_now) on conflict do nothing;
    return case when found then 'granted' else 'duplicate' end;
end $$;

-- revoke_project: remove the grant of a login for a project. The last grant of a login with a service role remains,
--   because without grants the login could use every project. Only an operator may call this.
--   Returns 'revoked'; 'last' if the grant remains; 'unknown' if the login has no such grant.
--   raises: see _enter
--   locks:  the login's grants
create function heliograph.revoke_project(p_project text, p_role text) returns text
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    perform from heliograph.project_grants where role_name = p_role order by project_id for update;
    if not exists (select from heliograph.project_grants where project_id = p_project and role_name = p_role) then
        return 'unknown';
    elsif not exists (select from heliograph.project_grants where project_id <> p_project and role_name = p_role)
          and exists (select from pg_roles r, pg_roles s
                       where r.rolname = p_role and not r.rolsuper and pg_has_role(r.oid, s.oid, 'member')
                         and s.rolname in ('heliograph_worker', 'heliograph_api', 'heliograph_reader',
                                           'heliograph_subscriber')) then
        return 'last';
    end if;
    delete from heliograph.project_grants where project_id = p_project and role_name = p_role;
    delete from heliograph.signal_grants where project_id = p_project and role_name = p_role;
    return 'revoked';
end $$;
