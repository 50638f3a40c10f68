-- Read-only views: the command line and the application read these, and never a table.

create view heliograph.run_overview as
select r.project_id, r.run_id, r.target, r.status, r.outcome, r.state, r.version, r.signal_seq as signal_count,
       r.open_turns, r.activations, r.owed, r.created_at, r.updated_at, r.ended_at
  from heliograph.runs r;

create view heliograph.turn_overview as
select t.project_id, t.agent_turn_id as turn_id, t.agent_id, h.agent_name as agent, t.run_id, h.target, t.queue_seq,
       case when t.state = 'active' then h.status else t.state end as status,
       case when t.state = 'active' then h.phase end as phase,
       case when t.state = 'active' then h.owner end as owner,
       case when t.state = 'active' then h.lease_until end as lease_until,
       coalesce(l.turn_epoch, case when t.state = 'active' then h.turn_epoch end) as turn_epoch,
       t.outcome, t.attempts, t.max_attempts, t.deliverable_card_id, t.output_box_id, t.created_at, t.expires_at,
       t.finished_at, heliograph._signal_id(t.run_id, t.cause_seq) as cause_id,
       heliograph._signal_id(t.run_id, t.activation_seq) as activation_id
  from heliograph.agent_turns t
  join heliograph.agent_state_head h using (project_id, agent_id)
  left join lateral (select max(l.turn_epoch) as turn_epoch from heliograph.leases l
                      where l.project_id = t.project_id and l.agent_id = t.agent_id
                        and l.agent_turn_id = t.agent_turn_id) l on true;

create view heliograph.signal_log as
select s.project_id, s.run_id, s.seq, heliograph._signal_id(s.run_id, s.seq) as id, s.name, s.payload, s.at as timestamp,
       s.agent, s.parent_id as parent, s.agent_turn_id as turn_id
  from heliograph.signals s;

create view heliograph.card_overview as
select t.project_id, c.card_id, t.agent_turn_id as turn_id, c.turn_epoch, c.kind, c.content, c.created_at, b.box_id,
       b.position
  from heliograph.agent_turns t  -- by way of its box, whose cards are together under one key
  join heliograph.box_cards b on b.project_id = t.project_id and b.box_id = t.output_box_id
  join heliograph.cards c on c.project_id = t.project_id and c.card_id = b.card_id
       and c.agent_turn_id = t.agent_turn_id;

create view heliograph.lease_overview as
select t.project_id, t.agent_turn_id as turn_id, t.agent_id, l.turn_epoch, l.owner, l.started_at, l.ended_at
  from heliograph.agent_turns t
  join heliograph.leases l on l.project_id = t.project_id and l.agent_id = t.agent_id
       and l.agent_turn_id = t.agent_turn_id;
