-- The inputs of a recorded run are in the commits of its log, and no longer in rows of their own (decision 0078). What
-- was recorded before in the database is dropped; recordings in files remain readable.

alter table heliograph.signals
    add column recording text collate "C",  -- of a run that is recorded: see heliograph._recording_of
    add constraint signals_recording_check check (octet_length(recording) <= 67108864) not valid;
alter table heliograph.signals alter column recording set storage external;  -- written once and read rarely

-- now one row for each recorded run: its name and its tags
delete from heliograph.recordings where part <> 'start';
alter table heliograph.recordings
    drop column part,  -- and the primary key
    drop column body,
    add primary key (project_id, run_id);
alter table heliograph.recordings reset (toast_tuple_target);

-- what the planner is to believe before it has seen any: see 0002_planner.sql
insert into heliograph.recordings (project_id, run_id, at)
select 'planner', 'run_' || n, '2000-01-01' from generate_series(1, 1000) n on conflict do nothing;
analyze heliograph.recordings;
delete from heliograph.recordings where project_id = 'planner';
