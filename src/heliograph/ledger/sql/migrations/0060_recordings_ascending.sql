-- The index of recorded runs is ascending, like runs_recent (decisions 0128 and 0146): a new run goes to its last page, which PostgreSQL
-- fills, where it splits any other page into halves.

-- serves recording_overview: the newest recordings first; those with a name are found within the index
drop index heliograph.runs_recorded;
create index runs_recorded on heliograph.runs (project_id, created_at, run_id, recording_name) where recording_tags is not null;
