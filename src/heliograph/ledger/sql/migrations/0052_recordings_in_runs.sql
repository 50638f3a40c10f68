-- The name and the tags of a recording are columns of its run, so a recorded run has no row and no key of its own for them (decision 0098).

create domain heliograph.recording_name as text collate "C";
alter table heliograph.runs
    add column recording_name heliograph.recording_name,
    add column recording_tags text[];  -- null: the run is not recorded
alter domain heliograph.recording_name add constraint recording_name_check check (octet_length(value) between 1 and 200);
update heliograph.runs r set recording_name = c.name, recording_tags = c.tags
  from heliograph.recordings c where c.project_id = r.project_id and c.run_id = r.run_id;
drop table heliograph.recordings cascade;  -- and the view recording_overview, which the kernel creates again

-- serves recording_overview: the newest recordings first; those with a name are found within the index
create index runs_recorded on heliograph.runs (project_id, created_at desc, run_id, recording_name) where recording_tags is not null;
