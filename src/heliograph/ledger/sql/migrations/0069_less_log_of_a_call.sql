-- A call writes less to the log (decision 0182).

-- A call is of the agent and the run of its turn, and its result has the card card:<turn>:call:<call>.
alter table heliograph.turn_waiting_tools
    drop column agent_id,
    drop column run_id,
    drop column result_card_id;
