-- doctor: what must hold in every database at every moment, and with p_quiescent also once all work is done
--   (kernel.md section 11, I1 to I18 as far as this schema has the parts, and R1 to R7 for runs).
--   Answers [{check, subject}], empty when all is well.
--   raises: nothing
--   locks:  nothing
create function heliograph.doctor(p_project text, p_quiescent boolean) returns jsonb
    language sql stable set search_path = pg_catalog as $$
    with t as (select * from heliograph.agent_turns where project_id = p_project),
         h as (select * from heliograph.agent_state_head where project_id = p_project),
         c as (select * from heliograph.cards where project_id = p_project),
         d as (select * from c where kind = 'task.deliverable'),
         o as (select * from heliograph.outbox where project_id = p_project and kind = 'task_event'),
         l as (select * from heliograph.leases where project_id = p_project),
         r as (select * from heliograph.runs where project_id = p_project),
         s as (select * from heliograph.signals where project_id = p_project),
    found as (
        select 'I1 at most one active turn per agent' as check, agent_id as subject
          from t where state = 'active' group by agent_id having count(*) > 1
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
        select 'I4 the deliverable is the one pointed at, in the output box', t.agent_turn_id from t
         where t.state = 'done' and not exists (
               select from d join heliograph.box_cards b using (project_id, card_id)
                where d.card_id = t.deliverable_card_id and d.agent_turn_id = t.agent_turn_id
                  and b.box_id = t.output_box_id)
        union all
        select 'I5 no deliverable before the end', d.agent_turn_id from d join t using (agent_turn_id)
         where t.state <> 'done'
        union all
        select 'I6 a finished turn has exactly one task event', t.agent_turn_id from t left join o using (agent_turn_id)
         where t.state = 'done' group by t.agent_turn_id having count(o.outbox_id) <> 1
        union all
        select 'I7 no task event before the end', o.agent_turn_id from o join t using (agent_turn_id)
         where t.state <> 'done'
        union all
        select 'I8 every task event is published', o.agent_turn_id from o where p_quiescent and o.published_at is null
        union all
        select 'I9 nothing is left open', agent_turn_id from t where p_quiescent and state <> 'done'
        union all
        select 'I9 no agent is busy', agent_id from h where p_quiescent and status <> 'idle'
        union all
        select 'I10 an open turn is owed in the inbox', t.agent_turn_id from t
         where t.state <> 'done' and not exists (
               select from heliograph.agent_inbox i
                where i.project_id = p_project and i.agent_id = t.agent_id and i.agent_turn_id = t.agent_turn_id
                  and i.status in ('queued', 'pending', 'processing', 'deferred'))
        union all
        select 'I11 a finished turn owes nothing in the inbox', i.agent_turn_id from heliograph.agent_inbox i
          join t using (project_id, agent_turn_id)
         where t.state = 'done' and i.status in ('queued', 'pending', 'processing', 'deferred')
        union all
        select 'I12 no card after the deliverable', c.agent_turn_id from c join d using (agent_turn_id)
          join heliograph.box_cards cb on cb.project_id = p_project and cb.card_id = c.card_id
          join heliograph.box_cards db on db.project_id = p_project and db.card_id = d.card_id
         where c.kind <> 'task.deliverable' and (c.turn_epoch > d.turn_epoch or cb.position > db.position)
        union all
        select 'I13 turns of an agent finish in order', agent_turn_id from (
               select agent_turn_id, finished_at, lag(finished_at) over (partition by agent_id order by queue_seq) as before
                 from t where outcome is distinct from 'timeout') f where finished_at < before
        union all
        select 'I14 exactly one enqueue edge per turn', t.agent_turn_id from t
          left join heliograph.execution_edges e on e.project_id = t.project_id
               and e.agent_turn_id = t.agent_turn_id and e.primitive = 'enqueue'
         group by t.agent_turn_id having count(e.edge_id) <> 1
        union all
        select 'I15 attempts are bounded', agent_turn_id from t where attempts >= max_attempts
        union all
        select 'I16 no card outside its writer''s lease', c.card_id from c join t using (agent_turn_id)
          left join l on l.agent_id = t.agent_id and l.turn_epoch = c.turn_epoch
         where c.kind <> 'task.deliverable' and (l.turn_epoch is null or c.created_at > l.ended_at
               or c.created_at < l.started_at or l.agent_turn_id <> c.agent_turn_id)
        union all
        select 'I17 leases of an agent never overlap', agent_id from (
               select agent_id, started_at, lag(ended_at) over w as before, lag(turn_epoch) over w as earlier
                 from l window w as (partition by agent_id order by turn_epoch)) x
         where earlier is not null and (before is null or started_at < before)
        union all
        select 'I18 the deliverable is the last owner''s', t.agent_turn_id from t join d using (agent_turn_id)
         where t.outcome = 'success'
           and d.turn_epoch <> (select max(l.turn_epoch) from l where l.agent_turn_id = t.agent_turn_id)
        union all
        select 'R1 open turns are counted right', r.run_id from r
         where r.open_turns <> (select count(*) from t where t.run_id = r.run_id and t.state <> 'done')
        union all
        select 'R2 owed reactions are counted right', r.run_id from r
         where r.owed <> (select count(*) from s where s.run_id = r.run_id and s.owed)
        union all
        select 'R3 the log is gapless', r.run_id from r
         where r.signal_seq <> (select count(*) from s where s.run_id = r.run_id)
            or r.signal_seq <> coalesce((select max(s.seq) from s where s.run_id = r.run_id), 0)
        union all
        select 'R4 an ended run has one workflow:end, and no other has one', r.run_id from r
         where (r.status = 'ended')::integer <> (select count(*) from s where s.run_id = r.run_id and s.name = 'workflow:end')
        union all
        select 'R5 a parent comes before its child', s.run_id from s left join s p
            on p.run_id = s.run_id and heliograph._signal_id(p.run_id, p.seq) = s.parent_id
         where s.parent_id is not null and (p.seq >= s.seq or (p.seq is null
               and s.parent_id = rtrim(heliograph._signal_id(s.run_id, 0), '0') || substring(s.parent_id from '[0-9]+$')))
        union all
        select 'R6 nothing waits for ever', r.run_id from r
         where r.status <> 'ended' and r.open_turns = 0 and r.owed = 0
        union all
        select 'R7 every run has ended', r.run_id from r where p_quiescent and r.status <> 'ended'
    )
    select coalesce(jsonb_agg(jsonb_build_object('check', f.check, 'subject', f.subject) order by f.check, f.subject), '[]')
      from found f
$$;
