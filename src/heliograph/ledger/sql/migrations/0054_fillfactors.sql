-- Rows that each turn updates leave room for their next version on the page of the first (decision 0105): an update within a page logs only what
-- it changes, and adds no entry to the indexes unless it changes a column of one. Pages that exist keep their rows.

alter table heliograph.agent_turns set (fillfactor = 50);  -- ended once
alter table heliograph.leases set (fillfactor = 50);       -- ended once
alter table heliograph.outbox set (fillfactor = 50);       -- published once
alter table heliograph.agent_inbox set (fillfactor = 40);  -- claimed, and consumed
