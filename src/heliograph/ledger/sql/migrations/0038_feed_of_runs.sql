-- Subscriptions find the runs with new signals without reading all of their runs: the feed has one row for each run, which moves to the
-- end with each commit of signals; and a position says whether signals follow it.

alter table heliograph.run_feed drop constraint run_feed_pkey;
alter table heliograph.run_feed add primary key (project_id, run_id);
create index run_feed_order on heliograph.run_feed (project_id, feed_id);

alter table heliograph.subscriptions
    add column writers text[],         -- transactions that may not know of the subscription; {}: not yet read; null: it is open
    add column entered_until text collate "C";  -- since the start: older runs up to this id are entered; null: all

alter table heliograph.subscription_runs
    add column has_news boolean not null default true,  -- signals may follow the position
    drop column feed_id,
    drop constraint subscription_runs_check,
    alter column lease_until type timestamptz using coalesce(lease_until, '-infinity'),
    alter column lease_until set not null;
-- serves take_signals: runs that waited longest come first
create index subscription_news on heliograph.subscription_runs (project_id, name, lease_until, run_id) where has_news;
