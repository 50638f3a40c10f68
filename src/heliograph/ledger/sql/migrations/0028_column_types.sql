-- Columns with a fixed set of values have types of their own. PostgreSQL parses the checks of a table in each statement
-- that writes to the table, but the check of a type once per session.

alter table heliograph.agent_state_head
    drop constraint agent_state_head_status_check,
    drop constraint agent_state_head_phase_check,
    drop constraint agent_state_head_priority_check,
    drop constraint agent_state_head_resumes_on_check;
alter table heliograph.agent_turns
    drop constraint agent_turns_state_check,
    drop constraint agent_turns_outcome_check,
    drop constraint agent_turns_message_type_check,
    drop constraint agent_turns_max_attempts_check,
    drop constraint agent_turns_starts_at;
alter table heliograph.agent_inbox
    drop constraint agent_inbox_status_check,
    drop constraint agent_inbox_message_type_check,
    drop constraint agent_inbox_report_status_check;
alter table heliograph.execution_edges
    drop constraint execution_edges_primitive_check,
    drop constraint execution_edges_edge_phase_check;
alter table heliograph.runs
    drop constraint runs_status_check,
    drop constraint runs_outcome_check,
    drop constraint runs_check2;
alter table heliograph.turn_waiting_tools
    drop constraint turn_waiting_tools_kind_check,
    drop constraint turn_waiting_tools_state_check,
    drop constraint turn_waiting_tools_status_check,
    drop constraint turn_waiting_tools_effect_check,
    drop constraint turn_waiting_tools_after_execution_check;
alter table heliograph.outbox
    drop constraint outbox_kind_check,
    drop constraint outbox_priority_check;
alter table heliograph.boxes
    drop constraint boxes_kind_check;
alter table heliograph.signals
    drop constraint signals_count_check;

-- without their checks at first: such a change of a column rewrites no table
create domain heliograph.head_status as text;
create domain heliograph.phase as text;
create domain heliograph.resumes_on as text;
create domain heliograph.priority as smallint;
create domain heliograph.turn_state as text;
create domain heliograph.outcome as text;
create domain heliograph.turn_message_type as text;
create domain heliograph.max_attempts as integer;
create domain heliograph.start_time as timestamptz;
create domain heliograph.message_status as text;
create domain heliograph.message_type as text;
create domain heliograph.call_status as text;
create domain heliograph.edge_primitive as text;
create domain heliograph.edge_phase as text;
create domain heliograph.run_status as text;
create domain heliograph.open_count as integer;
create domain heliograph.call_kind as text;
create domain heliograph.call_state as text;
create domain heliograph.effect as text;
create domain heliograph.after_execution as text;
create domain heliograph.outbox_kind as text;
create domain heliograph.box_kind as text;
create domain heliograph.signal_count as integer;
alter table heliograph.agent_state_head
    alter column status type heliograph.head_status,
    alter column phase type heliograph.phase,
    alter column priority type heliograph.priority,
    alter column resumes_on type heliograph.resumes_on;
alter table heliograph.agent_turns
    alter column state type heliograph.turn_state,
    alter column outcome type heliograph.outcome,
    alter column message_type type heliograph.turn_message_type,
    alter column max_attempts type heliograph.max_attempts,
    alter column starts_at type heliograph.start_time;
alter table heliograph.agent_inbox
    alter column status type heliograph.message_status,
    alter column message_type type heliograph.message_type,
    alter column report_status type heliograph.call_status;
alter table heliograph.execution_edges
    alter column primitive type heliograph.edge_primitive,
    alter column edge_phase type heliograph.edge_phase;
alter table heliograph.runs
    alter column status type heliograph.run_status,
    alter column outcome type heliograph.outcome,
    alter column open_turns type heliograph.open_count,
    alter column pending_reactions type heliograph.open_count;
alter table heliograph.turn_waiting_tools
    alter column kind type heliograph.call_kind,
    alter column state type heliograph.call_state,
    alter column status type heliograph.call_status,
    alter column effect type heliograph.effect,
    alter column after_execution type heliograph.after_execution;
alter table heliograph.outbox
    alter column kind type heliograph.outbox_kind,
    alter column priority type heliograph.priority;
alter table heliograph.boxes
    alter column kind type heliograph.box_kind;
alter table heliograph.signals
    alter column count type heliograph.signal_count;

alter domain heliograph.head_status add constraint head_status_check check (value in ('idle', 'dispatched', 'running', 'suspended'));
alter domain heliograph.phase add constraint phase_check check (value in ('init', 'plan', 'act', 'reflect', 'terminate'));
alter domain heliograph.resumes_on add constraint resumes_on_check check (value in ('all', 'each'));
alter domain heliograph.priority add constraint priority_check check (value between 0 and 3);
alter domain heliograph.turn_state add constraint turn_state_check check (value in ('queued', 'active', 'done'));
alter domain heliograph.outcome add constraint outcome_check check (value in ('success', 'failed', 'canceled', 'timeout', 'partial'));
alter domain heliograph.turn_message_type add constraint turn_message_type_check check (value in ('turn', 'ui_action'));
alter domain heliograph.max_attempts add constraint max_attempts_check check (value >= 1);
alter domain heliograph.start_time add constraint start_time_check check (value between '2000-01-01 00:00:00+00' and '2200-01-01 00:00:00+00');
alter domain heliograph.message_status add constraint message_status_check check (value in ('queued', 'pending', 'processing', 'deferred', 'consumed', 'duplicate',
                               'dead', 'canceled'));
alter domain heliograph.message_type add constraint message_type_check check (value in ('turn', 'ui_action', 'tool_result', 'timeout', 'stop'));
alter domain heliograph.call_status add constraint call_status_check check (value in ('success', 'failed', 'timeout', 'unknown', 'canceled'));
alter domain heliograph.edge_primitive add constraint edge_primitive_check check (value in ('enqueue', 'report', 'join', 'tool_call'));
alter domain heliograph.edge_phase add constraint edge_phase_check check (value in ('request', 'response'));
alter domain heliograph.run_status add constraint run_status_check check (value in ('running', 'terminating', 'ended'));
alter domain heliograph.open_count add constraint open_count_check check (value >= 0);
alter domain heliograph.call_kind add constraint call_kind_check check (value in ('tool', 'inline', 'child', 'timer', 'human'));
alter domain heliograph.call_state add constraint call_state_check check (value in ('open', 'resolved', 'closed'));
alter domain heliograph.effect add constraint effect_check check (value in ('pure', 'idempotent', 'transactional', 'once'));
alter domain heliograph.after_execution add constraint after_execution_check check (value in ('suspend', 'terminate'));
alter domain heliograph.outbox_kind add constraint outbox_kind_check check (value in ('task_event', 'cmd', 'report', 'stop', 'halt'));
alter domain heliograph.box_kind add constraint box_kind_check check (value in ('context', 'output'));
alter domain heliograph.signal_count add constraint signal_count_check check (value > 0);
