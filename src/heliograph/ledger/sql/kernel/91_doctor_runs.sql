-- The doctor's checks of runs, waits and boxes, and of orphaned rows.

-- _doctor_runs: R1 to R8, and O for runs.
create function heliograph._doctor_runs(p_project text, p_quiescent boolean) returns table (found text, subject text)
    language sql stable as $$
    -- before: the positions that are pruned or recorded by another run
    with r as (select *, greatest(pruned_seq, coalesce(forked_seq, 0)) as before from heliograph.runs
                where project_id = p_project),
         t as (select * from heliograph.agent_turns where project_id = p_project),
         g as (select * from heliograph.signals where project_id = p_project),
         s as (select g.run_id, g.seq + e.n - 1 as seq, e.entry ->> 'name' as name,
                      g.is_pending and coalesce(heliograph._as_boolean(e.entry -> 'is_pending'), false) as is_pending,
                      case jsonb_typeof(e.entry -> 'parent')
                           when 'number' then heliograph._signal_id(g.run_id,
                                                                    g.seq + heliograph._as_whole(e.entry -> 'parent'))
                           else heliograph._full_id(g.run_id, e.entry ->> 'parent') end as parent_id
                 from g cross join lateral jsonb_array_elements(g.entries) with ordinality e (entry, n))
    select 'R1 open turns are counted right', r.run_id from r
      left join (select run_id, count(*) as open from t where state <> 'done' group by run_id) x using (run_id)
     where r.open_turns <> coalesce(x.open, 0)
    union all
    select 'R2 pending reactions are counted right', r.run_id from r
      left join (select run_id, count(*) as pending from s where is_pending group by run_id) x using (run_id)
     where r.pending_reactions <> coalesce(x.pending, 0)
    union all
    -- prune deletes only the front of a log
    select 'R3 the log is gapless', r.run_id from r left join s using (run_id) group by r.run_id, r.signal_seq, r.before
    having r.signal_seq - r.before <> count(s.seq) or r.signal_seq <> coalesce(max(s.seq), r.before)
        or count(distinct s.seq) <> count(s.seq)
    union all
    select 'R4 an ended run has one workflow:end, and no other has one', r.run_id from r
      left join (select run_id, count(*) as ends from s where name = 'workflow:end' group by run_id) x using (run_id)
     where coalesce(x.ends, 0)
           not between case when r.status = 'ended' and r.pruned_seq = 0 then 1 else 0 end
               and (r.status = 'ended')::integer
    union all
    select 'R5 all but the root have a parent, which comes before', s.run_id from s join r using (run_id)
      left join s p on p.run_id = s.run_id and heliograph._signal_id(p.run_id, p.seq) = s.parent_id
     where (s.parent_id is null) <> (s.seq = 1) or (s.parent_id is not null and (p.seq >= s.seq or (p.seq is null
           and s.parent_id = rtrim(heliograph._signal_id(s.run_id, 0), '0') || substring(s.parent_id from '[0-9]+$')
           and substring(s.parent_id from '[0-9]+$')::numeric > r.before)))
    union all
    select 'R8 a fork shares a log that is there', f.run_id from r f left join r on r.run_id = f.forked_from
     where f.forked_from is not null
       and (r.run_id is null or r.signal_seq < f.forked_seq or coalesce(r.forked_seq, 0) >= f.forked_seq
            or r.pruned_seq > coalesce(r.forked_seq, 0))
    union all
    select 'R6 no run stays open without work', r.run_id from r
     where r.status <> 'ended' and r.open_turns = 0 and r.pending_reactions = 0
       and not (r.status = 'running' and r.memory ->> 'session' is not distinct from 'open')
    union all
    select 'R7 every run has ended', r.run_id from r where p_quiescent and r.status <> 'ended'
    union all
    select 'O1 an agent has its run', h.agent_id from heliograph.agent_state_head h left join r using (run_id)
     where h.project_id = p_project and (r.run_id is null or h.run_id <> heliograph._run_of(h.agent_id))
    union all
    select 'O2 a turn has its agent and its run', t.agent_turn_id from t left join r using (run_id)
      left join heliograph.agent_state_head h on h.project_id = p_project and h.agent_id = t.agent_id
          and h.run_id = t.run_id
     where r.run_id is null or h.agent_id is null
    union all
    select 'O3 a log has its run', g.run_id from g left join r using (run_id) where r.run_id is null
    union all
    select 'O14 a position of a subscription has its run', x.name || ' ' || x.run_id from heliograph.subscription_runs x
      left join r using (run_id) where x.project_id = p_project and r.run_id is null
$$;

-- _doctor_waits: W1 to W6 and W8 to W11, and O for rows of turns.
create function heliograph._doctor_waits(p_project text) returns table (found text, subject text)
    language sql stable as $$
    with t as (select * from heliograph.agent_turns where project_id = p_project),
         h as (select * from heliograph.agent_state_head where project_id = p_project),
         w as (select *, agent_turn_id || ' ' || tool_call_id as name,
                      (state = 'resolved' and kind <> 'inline')::integer as reports,
                      heliograph._result_id(agent_turn_id, tool_call_id) as result_card_id
                 from heliograph.turn_waiting_tools where project_id = p_project),
         a as (select agent_turn_id, count(*) as waits, min(deadline) as deadline from w
                where state = 'open' and kind <> 'inline' group by agent_turn_id),
         o as (select * from heliograph.outbox where project_id = p_project),
         c as (select * from heliograph.cards where project_id = p_project),
         i as (select * from heliograph.agent_inbox where project_id = p_project)
    select 'W1 a suspended turn counts its open calls', h.agent_id from h
      left join a on a.agent_turn_id = h.active_agent_turn_id
     where h.status = 'suspended' and h.waiting_tool_count <> coalesce(a.waits, 0)
    union all
    select 'W2 no call is open once its turn is done', w.name from w join t using (agent_turn_id)
     where w.state = 'open' and t.state = 'done'
    union all
    select 'W3 a command goes out until its call is resolved, and no longer', o.key from o
      left join w on w.agent_turn_id = o.agent_turn_id and w.tool_call_id = o.call_id
     where o.kind = 'cmd' and (w.name is null or (o.published_at is null) <> (w.state = 'open'))
    union all
    select 'W4 a resolved call has its result', w.name from w
      left join c on c.card_id = w.result_card_id and c.agent_turn_id = w.agent_turn_id
     where (w.state = 'resolved') <> (c.card_id is not null)
    union all
    select 'W5 results are numbered as they came', w.agent_turn_id from w where w.state = 'resolved'
     group by w.agent_turn_id having max(w.resolved_position) <> count(*)
         or count(distinct w.resolved_position) <> count(*)
    union all
    select 'W6 an open child is at work, or its report is on the way', w.name from w
     where w.kind = 'child' and w.state = 'open'
       and not exists (select from t where t.agent_turn_id = w.child_turn_id and t.state <> 'done')
       and not exists (select from o where o.key = 'report:' || w.child_turn_id and o.published_at is null)
    union all
    select 'W8 a resolved call has one applied report', w.name from w
      left join (select agent_turn_id, correlation_id, count(*) as reports from i where applied
                  group by agent_turn_id, correlation_id) x
        on x.agent_turn_id = w.agent_turn_id and x.correlation_id = w.tool_call_id
     where coalesce(x.reports, 0) <> w.reports
    union all
    select 'W9 the nearest deadline is the one shown', h.agent_id from h
        left join a on a.agent_turn_id = h.active_agent_turn_id
     where h.status = 'suspended' and h.resume_deadline is distinct from a.deadline
    union all
    select 'W10 cards are counted right', t.agent_turn_id from t
      left join (select c.agent_turn_id, count(*) as cards from c left join w on w.result_card_id = c.card_id
                  where c.kind <> 'task.deliverable' and w.name is null
                  group by c.agent_turn_id) x using (agent_turn_id)
     where t.card_count <> coalesce(x.cards, 0)
    union all
    select 'W11 a turn that waits for people is suspended', t.agent_turn_id from t
      left join h on h.active_agent_turn_id = t.agent_turn_id
     where t.state <> 'done' and t.human_wait_since is not null and h.status is distinct from 'suspended'
    union all
    select 'O4 an inbox row has its turn', i.agent_turn_id from i left join t using (agent_turn_id)
        where t.agent_id is null
    union all
    select 'O6 a call has its turn', w.name from w left join t using (agent_turn_id) where t.agent_id is null
    union all
    select 'O7 a lease has its turn', l.agent_id from heliograph.leases l left join t using (agent_turn_id)
     where l.project_id = p_project and t.agent_id is null
    union all
    -- a report belongs to the child: the parent may be pruned
    select 'O8 a row of the outbox has its turn', o.key from o
      left join t on t.agent_turn_id = case o.kind when 'report' then o.body ->> 'child_turn_id'
          else o.agent_turn_id end
     where t.agent_id is null
$$;

-- _doctor_boxes: B1 to B6, and O for cards, boxes and blobs.
create function heliograph._doctor_boxes(p_project text) returns table (found text, subject text)
    language sql stable as $$
    with t as (select * from heliograph.agent_turns where project_id = p_project),
         c as (select * from heliograph.cards where project_id = p_project),
         b as (select * from heliograph.boxes where project_id = p_project)
    select 'B1 a box has one writer', c.box_id from c group by c.box_id having count(distinct coalesce(c.agent_turn_id,
            '')) > 1
    union all
    select 'B2 no turn writes into a context box', c.card_id from c join b using (box_id)
     where b.kind = 'context' and c.agent_turn_id is not null
    union all
    select 'B3 no two open turns have one output box', t.output_box_id from t where t.state <> 'done'
     group by t.output_box_id having count(*) > 1
    union all
    select 'B4 a turn writes to its own box, or to a fork made for it', t.agent_turn_id from t
        left join b on b.box_id = t.output_box_id
     where t.output_box_id <> 'box_' || t.agent_turn_id and b.writer_turn_id is distinct from t.agent_turn_id
    union all
    select 'B5 a turn has the box that it reads', t.agent_turn_id from t
     where t.context_box_id is not null and not exists (select from b where b.box_id = t.context_box_id)
       and not exists (select from t x where x.agent_turn_id = substr(t.context_box_id, 5)
                       and t.context_box_id like 'box\_%')
    union all
    select 'B6 nobody writes to what a turn reads', t.agent_turn_id from t
      left join b on b.box_id = t.context_box_id
      join t w on w.agent_turn_id = case when b.box_id is null then substr(t.context_box_id, 5)
          else b.writer_turn_id end
     where w.state <> 'done' and (b.box_id is not null or t.context_box_id like 'box\_%')
    union all
    select 'O9 a card has its turn, or its box', c.card_id from c
      left join t using (agent_turn_id) left join b using (box_id)
     where case when c.agent_turn_id is null then b.box_id is null else t.agent_id is null end
    union all
    select 'O10 a fork has its base', b.box_id from b
     where b.base_box_id is not null and not exists (select from b x where x.box_id = b.base_box_id)
       and not exists (select from t where t.agent_turn_id = substr(b.base_box_id, 5) and b.base_box_id like 'box\_%')
    union all
    select 'O11 a box that a turn may write to has its turn', b.box_id from b
        left join t on t.agent_turn_id = b.writer_turn_id
     where b.writer_turn_id is not null and t.agent_id is null
    union all
    select 'O12 a card that points to a blob finds it', c.card_id from c
     where jsonb_typeof(c.content) = 'object' and c.content ->> '$blob' like 'sha256:%' and not exists (
           select from heliograph.blobs x where x.project_id = p_project and x.blob_id = c.content ->> '$blob')
$$;

-- doctor: run every check. p_quiescent: all work is done, so no turn, call or message may be open either.
--   Returns [{check, subject}]; empty if every check passes.
--   raises: see _enter
create function heliograph.doctor(p_project text, p_quiescent boolean) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp set enable_nestloop = off set jit = off
    set plan_cache_mode = force_generic_plan as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    -- the checks join whole tables: without statistics of a project the planner expects one row of it, and would
    -- compare each row with each other row. To plan them takes longer than to run them on a small project, and without
    -- nested loops the plan is the same for each project: a session plans once
    return (
        select coalesce(jsonb_agg(jsonb_build_object('check', f.found, 'subject', f.subject)
                                  order by f.found, f.subject), '[]')
          from (select * from heliograph._doctor_turns(v_project, p_quiescent)
                union all select * from heliograph._doctor_leases(v_project)
                union all select * from heliograph._doctor_runs(v_project, p_quiescent)
                union all select * from heliograph._doctor_waits(v_project)
                union all select * from heliograph._doctor_boxes(v_project)
                union all select * from heliograph._doctor_budgets(v_project)
                union all select * from heliograph._doctor_circuits(v_project)
                union all select * from heliograph._doctor_rows(v_project)) f);
end $$;
