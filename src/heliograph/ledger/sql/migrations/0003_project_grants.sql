-- Which logins are bound to which projects (S1, S2). A login that is not in here is bound to none, and free.

create table heliograph.project_grants (
    project_id text collate "C" not null,
    role_name  name not null,                   -- a login: session_user, which no SET ROLE changes
    granted_by name not null,
    granted_at timestamptz not null,
    primary key (project_id, role_name)
);
-- serves _enter and the policies of 96_roles.sql: whether a login is bound is asked before there is a project to ask about
create index grants_of_role on heliograph.project_grants (role_name, project_id);
