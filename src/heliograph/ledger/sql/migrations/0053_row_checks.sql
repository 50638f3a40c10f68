-- PostgreSQL parses the constraints of a table in each statement that writes to it (decision 0104). So the tables that each turn writes to
-- keep those that reject what a caller may send: cards_check, runs_check3 and signals_recording_check. The doctor finds rows that
-- break the others, and test databases have them still.

alter table heliograph.agent_state_head
    drop constraint agent_state_head_check,
    drop constraint agent_state_head_check1,
    drop constraint agent_state_head_check2,
    drop constraint agent_state_head_check3,
    drop constraint agent_state_head_check4,
    drop constraint agent_state_head_check5,
    drop constraint agent_state_head_check6,
    drop constraint agent_state_head_stop;
alter table heliograph.agent_turns
    drop constraint agent_turns_check,
    drop constraint agent_turns_check1,
    drop constraint agent_turns_check2,
    drop constraint agent_turns_check3;
alter table heliograph.runs
    drop constraint runs_check,
    drop constraint runs_check1,
    drop constraint runs_forked_check;
alter table heliograph.turn_waiting_tools
    drop constraint turn_waiting_tools_check,
    drop constraint turn_waiting_tools_check1,
    drop constraint turn_waiting_tools_check2,
    drop constraint turn_waiting_tools_check3;
alter table heliograph.cards drop constraint cards_check1;
alter table heliograph.signals drop constraint signals_check;
