-- What rings on a channel that every login of the database can listen to is a keyed hash. This is what the keys are made of:
-- two secrets, used one inside the other, so that the key of one project tells nothing about the key of another.

create table heliograph.bell_secret (
    is_only    boolean primary key default true check (is_only),
    inner_key  bytea not null,
    outer_key  bytea not null
);
insert into heliograph.bell_secret (inner_key, outer_key)
values (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
        sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
