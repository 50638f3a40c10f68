-- A turn that starts and ends writes fewer rows and less log (decision 0128).

-- The message that begins a turn says all that its edge said, so edge_overview has the edge from there.
delete from heliograph.execution_edges where primitive = 'enqueue';

-- Serves the newest runs, and prune. Ascending, because PostgreSQL fills the last page of an index, and splits any other page into
-- halves.
drop index heliograph.runs_recent;
create index runs_recent on heliograph.runs (project_id, created_at, run_id);
