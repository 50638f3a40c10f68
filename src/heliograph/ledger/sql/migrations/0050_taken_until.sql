-- A subscriber records positions only up to the signals that it has taken.

alter table heliograph.subscription_runs add column upto bigint;  -- the last position that its subscriber has taken; null without one
-- subscribers that have runs now may record any position of their logs, as before
update heliograph.subscription_runs s
   set upto = greatest(s.position, coalesce((select r.signal_seq from heliograph.runs r
                                              where r.project_id = s.project_id and r.run_id = s.run_id), s.position))
 where s.subscriber is not null;
alter table heliograph.subscription_runs
    add constraint subscription_runs_upto_check check ((subscriber is null) = (upto is null) and upto >= position);
