-- The edges of a call are its row: view edge_overview reads them from there (decision 0177).

drop table heliograph.execution_edges;
drop domain heliograph.edge_primitive;
drop domain heliograph.edge_phase;
