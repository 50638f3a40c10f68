-- A turn writes less to the log (decision 0178).

-- A message is of the agent of its turn, and its result has the card card:<turn>:call:<call>. The signal that caused a turn is that of
-- the turn, unless the message names another one.
alter table heliograph.agent_inbox
    drop column agent_id,
    drop column payload_card_id,
    alter column correlation_id drop not null;

-- Null: the turn has not waited for humans.
alter table heliograph.agent_turns alter column human_wait_time drop not null, alter column human_wait_time drop default;
