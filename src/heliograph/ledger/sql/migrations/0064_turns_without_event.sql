-- A turn that ends in a project without a wire has no row in the outbox: it says so itself (decision 0164).

alter table heliograph.agent_turns add column lacks_event boolean not null default false;
