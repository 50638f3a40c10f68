-- Which wires a project has beside PostgreSQL's own. Where there is one, only a worker that has it may publish.

create table heliograph.project_wires (
    project_id  text collate "C" not null,
    wire        text collate "C" not null,      -- nats
    declared_at timestamptz not null,
    primary key (project_id, wire)
);
