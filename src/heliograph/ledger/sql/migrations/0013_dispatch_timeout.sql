-- The dispatch timeout of the specification: how long a dispatched turn may wait for a worker, see 73_unclaimed.sql. Null: as long
-- as the turn lives.
alter table heliograph.project_limits
    add column dispatch_seconds_max integer check (dispatch_seconds_max between 1 and 31622400);
