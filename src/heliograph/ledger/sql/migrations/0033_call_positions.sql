-- The places of calls in the log of their run, by which a fork decides what came before it (decision 0072). The order of the times
-- does not decide it: a transaction takes its time before it waits for the lock of its run.

-- the first signal that was recorded with the call or after it; null: opened before this migration
alter table heliograph.turn_waiting_tools add column opened_seq bigint;
-- the last signal that was recorded with the result or before it
alter table heliograph.turn_waiting_tools add column resolved_seq bigint;
