-- Forks: a run that continues the log of another run after one of its signals, and does not copy it (decision 0072).

alter table heliograph.runs add column forked_from text collate "C";  -- the run whose log it shares
alter table heliograph.runs add column forked_seq bigint;             -- up to this position
alter table heliograph.runs add constraint runs_forked_check
    check ((forked_from is null) = (forked_seq is null) and forked_seq > 0);
-- serves prune: a run stays as long as its forks
create index runs_forked on heliograph.runs (project_id, forked_from, forked_seq) where forked_from is not null;
