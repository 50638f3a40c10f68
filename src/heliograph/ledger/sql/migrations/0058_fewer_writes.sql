-- A turn that starts and ends writes fewer rows and less log (decision 0128).

-- The message that begins a turn says all that its edge said, so edge_overview has the edge from there.
delete from heliograph.execution_edges where primitive = 'enqueue';

-- Serves the newest runs, and prune. Ascending, because PostgreSQL fills the last page of an index, and splits any other page into
-- halves.
drop index heliograph.runs_recent;
create index runs_recent on heliograph.runs (project_id, created_at, run_id);

-- The signal that woke the active turn has the run of the head in its id, so the head keeps its position alone; the trace is the run.
-- Three of four updates of a head wrote both texts into the log again.
alter table heliograph.agent_state_head add column activation_seq bigint;
update heliograph.agent_state_head h set activation_seq = t.activation_seq
  from heliograph.agent_turns t
 where t.project_id = h.project_id and t.agent_turn_id = h.active_agent_turn_id;
alter table heliograph.agent_state_head drop column trace_id, drop column parent_step_id;

-- An update of a run leaves its page less often with room for two versions of each row.
alter table heliograph.runs set (fillfactor = 50);
