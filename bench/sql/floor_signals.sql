-- Upon floor_turn.sql: five signal rows per turn, in the same five commits.

create table signal (
    seq      bigint generated always as identity primary key,
    agent_id integer not null,
    name     text not null,
    at       timestamptz not null default now(),
    body     jsonb not null
);

create function emit() returns trigger language plpgsql as $$
begin
    insert into signal (agent_id, name, body)
    values (new.agent_id, tg_table_name || ':changed:' || new.state,
            jsonb_build_object('id', new.id, 'state', new.state));
    return null;
end $$;
create trigger turn_emits after insert or update on turn for each row execute function emit();
create trigger inbox_emits after insert on inbox for each row execute function emit();
