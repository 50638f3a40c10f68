-- Roles and rights (S1, S2, S18, S21). Service roles execute functions and read views; they have no right on any table.
-- The functions run as their owner. Row security applies to the owner, too, so they see only the entered project.
--
-- heliograph_owner   owns the schema, the tables and the functions; its members are operators
-- heliograph_views   owns the views, so that they have their own policy; it has no members
-- heliograph_worker, heliograph_api, heliograph_reader, heliograph_subscriber   are granted to logins; the last one
--                    reads nothing but the signals that its grants name
--
-- If the installer may not create roles, it owns everything, and no other login has any right. All statements here can
-- be repeated, and installers of several databases of one cluster may run them at once. An object that is already
-- correct is not changed: a table is locked when it receives its policy, and never again.

-- Create the roles and give the schema to its owner, completely or not at all.
do $$
declare
    v_role text;
begin
    foreach v_role in array array['heliograph_owner', 'heliograph_views', 'heliograph_worker', 'heliograph_api',
                                  'heliograph_reader', 'heliograph_subscriber'] loop
        continue when exists (select from pg_roles where rolname = v_role);
        begin
            execute format('create role %I nologin', v_role);
        exception when duplicate_object or unique_violation then
            null;  -- another installer was first; this one has waited for its commit
        end;
    end loop;
    -- a role that may create roles may grant them to itself, and must do so before it can change an owner
    foreach v_role in array array['heliograph_owner', 'heliograph_views'] loop
        if not pg_has_role(current_user, v_role, 'usage') then
            execute format('grant %I to current_user', v_role);
        end if;
    end loop;
    alter schema heliograph owner to heliograph_owner;
    grant usage on schema heliograph to heliograph_views, heliograph_worker, heliograph_api, heliograph_reader,
                                          heliograph_subscriber;
exception when insufficient_privilege then
    null;  -- without this right the installer owns the schema; the last block of this file returns early then
end $$;

-- How long a client may hold a lock (S21). `helio db grant` copies these settings from the role to a login, because
-- PostgreSQL applies the settings of the role that logs in, not of those it is a member of. A frozen holder of a lock
-- has less time than a session that waits for it. Only TCP notices a client that stops reading its answer, because no
-- timeout of a statement interrupts a send. Other values that an operator has set remain.
do $$
declare
    v_each record;
begin
    for v_each in
        select r.rolname, s.name, s.value
          from pg_roles r
          join pg_namespace n on n.nspname = 'heliograph' and n.nspowner::regrole::text = 'heliograph_owner'
         cross join (values ('idle_in_transaction_session_timeout', '5s'), ('lock_timeout', '8s'),
                            ('statement_timeout', '30s'), ('tcp_user_timeout', '30s')) s (name, value)
         where r.rolname in ('heliograph_worker', 'heliograph_api', 'heliograph_reader', 'heliograph_subscriber')
           and not exists (select from pg_db_role_setting g, unnest(g.setconfig) c
                            where g.setdatabase = 0 and g.setrole = r.oid and c like s.name || '=%')
         order by r.rolname, s.name
    loop
        execute format('alter role %I set %I = %L', v_each.rolname, v_each.name, v_each.value);
    end loop;
exception when insufficient_privilege then
    null;  -- another operator owns the roles, and has set them
end $$;

-- Tables: their owner, and row security as a second lock. No function reads a row without naming its project; if one
-- did, the policy would hide that row. "case .. is not null" hides the policy from the planner. The planner would use
-- a plain comparison as an index condition, and search the whole project for rows that it finds by their whole key or
-- by their ctid. It would also count the comparison as a second filter, and expect almost no rows in a whole project.
do $$
declare
    v_has_roles constant boolean := 'heliograph_owner' = (
        select nspowner::regrole::text from pg_namespace where nspname = 'heliograph');
    v_table record;
begin
    for v_table in
        select c.oid::regclass as name, c.relrowsecurity and c.relforcerowsecurity as is_forced, o.owner,
               c.oid = 'heliograph.project_grants'::regclass as is_grants,
               array(select p.polname::text from pg_policy p where p.polrelid = c.oid) as policies,
               array(select p.polname::text from pg_policy p where p.polrelid = c.oid
                     and p.polroles = array[o.owner::oid]) as owned
          from pg_class c
         cross join lateral (
               select case when v_has_roles then to_regrole('heliograph_owner') else c.relowner::regrole end as owner) o
         where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'r'
         order by c.oid
    loop
        if v_table.owner <> (select relowner from pg_class where oid = v_table.name) then
            execute format('alter table %s owner to %s', v_table.name, v_table.owner);
        end if;
        if v_has_roles and not has_table_privilege('heliograph_views', v_table.name, 'select') then
            execute format('grant select on %s to heliograph_views', v_table.name);
        end if;
        continue when not exists (select from pg_attribute a
                                   where a.attrelid = v_table.name and a.attname = 'project_id' and not a.attisdropped);
        if v_table.is_grants and not 'own' = any (v_table.policies) then
            -- read before a project is entered: a login sees its own grants, an operator sees all
            execute format('create policy own on %s using '
                '(role_name = session_user or pg_has_role(session_user, current_user, ''member''))', v_table.name);
        elsif not v_table.is_grants and not 'project' = any (v_table.policies) then
            execute format('create policy project on %s to %s using '
                '(case when project_id = current_setting(''heliograph.project'', true) then true end is not null)',
                v_table.name, v_table.owner);
        elsif not v_table.is_grants and not 'project' = any (v_table.owned) then
            execute format('alter policy project on %s to %s', v_table.name, v_table.owner);
        end if;
        if v_has_roles and not v_table.is_grants and not 'seen' = any (v_table.policies) then
            -- the views show a bound login its own projects, an operator all projects, and any other login the project
            -- that its session names; a session that names a project sees only that one
            execute format('create policy seen on %s for select to heliograph_views using (case when '
                'coalesce(project_id = any ((select array_agg(g.project_id order by g.project_id) '
                    'from heliograph.project_grants g where g.role_name = session_user)::text[]), '
                    '(select pg_has_role(current_user, ''heliograph_owner'', ''member'') '
                    'or current_setting(''heliograph.project'', true) <> '''')) '
                'and project_id = coalesce(nullif(current_setting(''heliograph.project'', true), ''''), project_id) '
                'then true end is not null)', v_table.name);
        end if;
        if not v_table.is_forced then
            execute format('alter table %s enable row level security, force row level security', v_table.name);
        end if;
    end loop;
end $$;

-- Functions and views. Each installation creates them again. The public ones run as their owner, apart from those of
-- 65_calls_that_claim.sql. pg_temp comes last: by default it comes first, and a caller's type there would replace ours.
do $$
declare
    v_has_roles constant boolean := 'heliograph_owner' = (
        select nspowner::regrole::text from pg_namespace where nspname = 'heliograph');
    v_each record;
begin
    for v_each in
        select p.oid::regprocedure as name, p.proname not like '\_%' as is_public,
               p.proname in ('start_and_claim', 'report_and_claim') as is_invoker
          from pg_proc p where p.pronamespace = 'heliograph'::regnamespace order by p.oid
    loop
        execute format('revoke all on function %s from public', v_each.name);
        if v_each.is_public then
            execute format('alter function %s security %s set search_path = pg_catalog, pg_temp', v_each.name,
                           case when v_each.is_invoker then 'invoker' else 'definer' end);
        end if;
        if v_has_roles then
            execute format('alter function %s owner to heliograph_owner', v_each.name);
        end if;
    end loop;
    if not v_has_roles then
        return;
    end if;
    for v_each in
        select c.oid::regclass as name from pg_class c
         where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'c' order by c.oid
    loop
        execute format('alter type %s owner to heliograph_owner', v_each.name);
    end loop;

    -- the functions of each service; set_limits, prune, forget_wire, reset_rate, grant_project and revoke_project are
    -- for operators; so are grant_signals and revoke_signals
    for v_each in
        select p.oid::regprocedure as name, array_to_string(g.roles, ', ') as roles
          from (values
                (array['heliograph_worker'],
                 array['claim', 'fail_unclaimable', 'renew', 'release', 'append', 'begin_call', 'record_call',
                       'suspend', 'defer', 'finish', 'finish_and_claim', 'react',
                       'fork_boxes', 'replace_boxes', 'sweep_leases', 'sweep_expired', 'sweep_waits', 'sweep_stops',
                       'sweep_reports', 'sweep_stuck', 'sweep_queued', 'sweep_bells', 'sweep_pending_reactions',
                       'declare_wire', 'remember', 'beat', 'deregister',
                       'read_outbox', 'mark_published', 'take_commands', 'command_pools', 'take_halts', 'report',
                       'take_callbacks', 'record_callbacks', 'sweep_callbacks']),
                (array['heliograph_api'],
                 array['start_runs', 'enqueue', 'report', 'report_result', 'take_commands', 'stop', 'stop_runs',
                       'put_boxes', 'redeliver_callbacks',
                       'remember', 'forget']),
                (array['heliograph_worker', 'heliograph_api'], array['start_and_claim', 'report_and_claim']),
                (array['heliograph_worker', 'heliograph_api', 'heliograph_subscriber'],
                 array['subscribe', 'unsubscribe', 'take_signals', 'record_positions']),
                (array['heliograph_worker', 'heliograph_api', 'heliograph_reader', 'heliograph_subscriber'],
                 array['bell_key', 'list_signal_grants']),
                (array['heliograph_worker', 'heliograph_api', 'heliograph_reader'],
                 array['read_log', 'read_recorded', 'read_open_turns', 'read_ended_turns', 'why', 'why_not',
                       'read_tree', 'read_graph', 'read_box', 'read_conversation', 'recall', 'doctor',
                       'liveness', 'measure', 'list_workers',
                       'read_shared_log', 'first_failure',
                       'list_subscriptions'])) g (roles, names)
          join pg_proc p on p.pronamespace = 'heliograph'::regnamespace and p.proname = any (g.names) order by p.oid
    loop
        execute format('grant execute on function %s to %s', v_each.name, v_each.roles);
    end loop;
    -- A view's functions are called by the login that reads it, and not by the view's owner: these only format text.
    for v_each in
        select distinct d.refobjid::regprocedure as name
          from pg_depend d join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
          join pg_class c on c.oid = w.ev_class and c.relkind = 'v' and c.relnamespace = 'heliograph'::regnamespace
          join pg_proc p on d.refclassid = 'pg_proc'::regclass and p.oid = d.refobjid
         where p.pronamespace = 'heliograph'::regnamespace and p.proname like '\_%' and not p.prosecdef
        union
        select p.oid::regprocedure from pg_proc p  -- which _time_of calls
         where p.pronamespace = 'heliograph'::regnamespace and p.proname = '_as_time'
         order by 1
    loop
        execute format('grant execute on function %s to heliograph_worker, heliograph_api, heliograph_reader',
                       v_each.name);
    end loop;

    grant create on schema heliograph to heliograph_views;  -- only until it has received the views
    for v_each in
        select c.oid::regclass as name from pg_class c
         where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'v' order by c.oid
    loop
        execute format('alter view %s owner to heliograph_views', v_each.name);
        execute format('grant select on %s to heliograph_owner, heliograph_worker, heliograph_api, heliograph_reader',
                       v_each.name);
    end loop;
    revoke create on schema heliograph from heliograph_views;
    grant select on heliograph.schema_version, heliograph.kernel_version, heliograph.head_transitions
       to heliograph_worker, heliograph_api, heliograph_reader, heliograph_subscriber;
end $$;
