-- The doctor: conditions that hold in every database at every moment, and conditions that hold once all work is done.
-- The letters: I turns and agents, H heads, W waits and counts, R runs, B boxes, U budgets, C circuit breakers, O
-- orphans, which replace foreign keys. It reads every row, so use it in tests and quiet hours, and liveness otherwise.

-- _doctor_turns: I1 to I15. p_quiescent: all work is done, so no turn may be open.
create function heliograph._doctor_turns(p_project text, p_quiescent boolean) returns table (found text, subject text)
    language sql stable as $$
    with t as (select * from heliograph.agent_turns where project_id = p_project),
         h as (select * from heliograph.agent_state_head where project_id = p_project),
         c as (select * from heliograph.cards where project_id = p_project),
         d as (select * from c where kind = 'task.deliverable'),
         o as (select * from heliograph.outbox where project_id = p_project),
         i as (select * from heliograph.agent_inbox
                where project_id = p_project and status in ('queued', 'pending', 'processing', 'deferred'))
    select 'I1 at most one active turn per agent', agent_id from t where state = 'active'
        group by agent_id having count(*) > 1
    union all
    select 'I2 head and turn agree', h.agent_id from h left join t on t.agent_turn_id = h.active_agent_turn_id
     where h.active_agent_turn_id is not null
       and (t.agent_turn_id is null or t.state <> 'active' or t.agent_id <> h.agent_id)
    union all
    select 'I2 an active turn has its head', t.agent_turn_id from t
      left join h on h.active_agent_turn_id = t.agent_turn_id where t.state = 'active' and h.agent_id is null
    union all
    select 'I3 a finished turn has exactly one deliverable', t.agent_turn_id from t
      left join d using (agent_turn_id) where t.state = 'done' group by t.agent_turn_id having count(d.card_id) <> 1
    union all
    select 'I4 the deliverable is in the output box', t.agent_turn_id from t
     where t.state = 'done' and not exists (
           select from d where d.agent_turn_id = t.agent_turn_id and d.box_id = t.output_box_id)
    union all
    select 'I5 no deliverable before the end', d.agent_turn_id from d join t using (agent_turn_id)
        where t.state <> 'done'
    union all
    select 'I6 a finished turn has exactly one task event, unless it is marked as lacking one', t.agent_turn_id from t
      left join o on o.agent_turn_id = t.agent_turn_id and o.kind = 'task_event'
     where t.state = 'done' group by t.agent_turn_id, t.lacks_event
    having count(o.outbox_id) + t.lacks_event::integer <> 1
    union all
    select 'I7 no task event before the end', o.agent_turn_id from o join t using (agent_turn_id)
     where o.kind = 'task_event' and t.state <> 'done'
    union all
    select 'I8 nothing is left in the outbox', o.key from o where p_quiescent and o.published_at is null
    union all
    select 'I9 nothing is left open', agent_turn_id from t where p_quiescent and state <> 'done'
    union all
    select 'I9 no agent is busy', agent_id from h where p_quiescent and status <> 'idle'
    union all
    select 'I10 an open turn has an open inbox row, unless it is suspended', t.agent_turn_id from t
     where t.state <> 'done' and not exists (select from i where i.agent_turn_id = t.agent_turn_id)
       and not exists (select from h where h.active_agent_turn_id = t.agent_turn_id and h.status = 'suspended')
    union all
    select 'I11 a finished turn has no open row in the inbox', i.agent_turn_id from i join t using (agent_turn_id)
        where t.state = 'done'
    union all
    select 'I12 no card after the deliverable', c.agent_turn_id from c join d using (agent_turn_id)
     where c.kind <> 'task.deliverable' and (c.turn_epoch > d.turn_epoch or c.position > d.position)
    union all
    -- a turn that is stopped or expires may end before earlier ones
    select 'I13 turns of an agent finish in order', agent_turn_id from (
           select agent_turn_id, finished_at, lag(finished_at) over (partition by agent_id order by queue_seq) as before
             from t where outcome is null or outcome not in ('timeout', 'canceled')) f where finished_at < before
    union all
    select 'I14 exactly one message begins a turn', t.agent_turn_id from t
      left join heliograph.agent_inbox i on i.project_id = p_project
           and i.agent_turn_id = t.agent_turn_id and i.message_type in ('turn', 'ui_action')
     group by t.agent_turn_id having count(i.inbox_id) <> 1
    union all
    select 'I15 attempts are bounded', agent_turn_id from t where attempts >= max_attempts
$$;

-- _doctor_leases: I16 to I18, H1 to H3.
create function heliograph._doctor_leases(p_project text) returns table (found text, subject text)
    language sql stable as $$
    with t as (select * from heliograph.agent_turns where project_id = p_project),
         h as (select * from heliograph.agent_state_head where project_id = p_project),
         c as (select * from heliograph.cards where project_id = p_project),
         l as (select * from heliograph.leases where project_id = p_project)
    -- the kernel writes a result under any owner of the turn
    select 'I16 no card outside its writer''s lease', c.card_id from c join t using (agent_turn_id)
      left join l on l.agent_id = t.agent_id and l.turn_epoch = c.turn_epoch
     where c.kind not in ('task.deliverable', 'tool.result') and (l.turn_epoch is null or c.created_at > l.ended_at
           or c.created_at < l.started_at or l.agent_turn_id <> c.agent_turn_id)
    union all
    select 'I17 leases of an agent never overlap', agent_id from (
           select agent_id, started_at, lag(ended_at) over w as before, lag(turn_epoch) over w as earlier
             from l window w as (partition by agent_id order by turn_epoch)) x
     where earlier is not null and (before is null or started_at < before)
    union all
    select 'I18 the deliverable is the last owner''s', t.agent_turn_id from t
      join c d on d.agent_turn_id = t.agent_turn_id and d.kind = 'task.deliverable'
      join (select agent_turn_id, max(turn_epoch) as newest from l group by agent_turn_id) x
        on x.agent_turn_id = t.agent_turn_id
     where t.outcome = 'success' and d.turn_epoch <> x.newest
    union all
    select 'H1 a running head has the open lease of its epoch', h.agent_id from h
     where h.status = 'running' and not exists (
           select from l where l.agent_id = h.agent_id and l.turn_epoch = h.turn_epoch and l.ended_at is null
              and l.agent_turn_id = h.active_agent_turn_id)
    union all
    select 'H2 a lease is open only while its head runs', l.agent_id from l
      left join h on h.agent_id = l.agent_id and h.turn_epoch = l.turn_epoch and h.status = 'running'
     where l.ended_at is null and h.agent_id is null
    union all
    -- a head enters a status under a new epoch or under the last owner's, as in head_transitions
    select 'H3 the epoch of a head is of its status', h.agent_id from h
      left join l on l.agent_id = h.agent_id and l.turn_epoch = h.turn_epoch
     where not exists (select from heliograph.head_transitions m where m.to_status = h.status
                          and (l.turn_epoch is not null) = (m.epoch_step = 0 or m.move = 'claim'))
       and h.turn_epoch > 0
    union all
    select 'H3 no lease is newer than its head', l.agent_id from l join h on h.agent_id = l.agent_id
        and h.turn_epoch < l.turn_epoch
$$;
