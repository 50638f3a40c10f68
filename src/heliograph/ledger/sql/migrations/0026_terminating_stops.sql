-- Graceful stops of turns that do not run, and whose agents have a terminate hook (decision 0039).

-- terminates: the active turn runs its terminate phase before it ends as canceled. suspend and defer set it.
alter table heliograph.agent_state_head add column terminates boolean not null default false;
alter table heliograph.agent_state_head drop constraint agent_state_head_check7;
alter table heliograph.agent_state_head add constraint agent_state_head_stop
    check (stop_requested_at is null or status = 'running' or (status = 'dispatched' and terminates));

insert into heliograph.head_transitions (move, from_status, to_status, epoch_step, by, note) values
    ('stop', 'suspended', 'dispatched', 0, '_stop_turn',
     'a graceful stop; a worker runs its terminate phase (LC-65)');
