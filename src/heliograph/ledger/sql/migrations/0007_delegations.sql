-- Delegations: calls of one step that are given up together. See _with_given_up.

alter table heliograph.turn_waiting_tools add column fails_fast boolean not null default false;
