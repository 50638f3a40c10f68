-- Time that a turn spends waiting for people does not count toward its ttl_seconds: see 47_people.sql.

-- since when the turn has waited for people and for nothing else; null: it does not
alter table heliograph.agent_turns add column people_since timestamptz;
-- how long it has waited for people in all: expires_at has moved by this
alter table heliograph.agent_turns add column people_time interval not null default '0';

-- turns that wait for people when this migration runs
update heliograph.agent_turns t
   set people_since = h.moved_at
  from heliograph.agent_state_head h
 where t.state = 'active' and h.project_id = t.project_id and h.active_agent_turn_id = t.agent_turn_id
   and h.agent_id = t.agent_id and h.status = 'suspended'
   and exists (select from heliograph.runs r
                where r.project_id = t.project_id and r.run_id = t.run_id and r.status = 'running')
   and not exists (select from heliograph.turn_waiting_tools w
                    where w.project_id = t.project_id and w.agent_turn_id = t.agent_turn_id
                      and w.state = 'open' and w.kind not in ('human', 'inline'));

drop index heliograph.turn_expiry;
-- serves sweep_expired
create index turn_expiry on heliograph.agent_turns (project_id, expires_at) where state <> 'done' and people_since is null;
