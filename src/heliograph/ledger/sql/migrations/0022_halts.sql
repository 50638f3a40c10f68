-- Halts in the outbox: a call of another system's agent or tool that nobody waits for any more (decision 0046).

alter table heliograph.outbox drop constraint outbox_kind_check;
alter table heliograph.outbox add constraint outbox_kind_check
    check (kind in ('task_event', 'cmd', 'report', 'stop', 'halt'));
