-- The start of a delegated turn that a hand-written statement could store: after infinity the turn would never begin.

-- Repair such rows: a turn without a start begins at once. Its head already waits for that start if it is dispatched.
update heliograph.agent_state_head h set due_at = null
  from heliograph.agent_turns t
 where t.project_id = h.project_id and t.agent_turn_id = h.active_agent_turn_id and h.status = 'dispatched'
   and h.due_at = t.starts_at and not t.starts_at between '2000-01-01 00:00:00+00' and '2200-01-01 00:00:00+00';
update heliograph.agent_turns set starts_at = null
 where not starts_at between '2000-01-01 00:00:00+00' and '2200-01-01 00:00:00+00';

alter table heliograph.agent_turns add constraint agent_turns_starts_at check (
    starts_at between '2000-01-01 00:00:00+00' and '2200-01-01 00:00:00+00');
