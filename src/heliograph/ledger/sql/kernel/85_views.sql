-- Read-only views: the command line and the application read these, and never a table.

-- run_overview: runs with their state and their counts
create view heliograph.run_overview as
select r.project_id, r.run_id, r.target, r.status, r.outcome, r.state, r.version, r.signal_seq as signal_count,
       r.open_turns, r.activations, r.pending_reactions, r.stop_reason, r.created_at, r.updated_at, r.ended_at,
       -- of its caller, as in take_callbacks
       jsonb_strip_nulls(jsonb_build_object('traceparent', r.memory -> 'traceparent',
                                            'trace_id', r.memory -> 'trace_id')) as trace,
       r.forked_from, r.forked_seq
  from heliograph.runs r;

-- turn_overview: turns, with the state of their agent's head while they are active
create view heliograph.turn_overview as
select t.project_id, t.agent_turn_id as turn_id, t.agent_id, h.agent_name as agent, t.run_id, h.target, t.pool,
       t.queue_seq, t.activation_seq,
       case when t.state = 'active' then h.status else t.state end as status,
       case when t.state = 'active' then h.phase end as phase,
       case when t.state = 'active' then h.owner end as owner,
       case when t.state = 'active' then h.lease_until end as lease_until,
       coalesce((  -- of its last lease, which is the last one of the agent up to now, or up to the deliverable
           select case when x.agent_turn_id = t.agent_turn_id then x.turn_epoch end
             from (select l.agent_turn_id, l.turn_epoch from heliograph.leases l
                    where l.project_id = t.project_id and l.agent_id = t.agent_id
                      and l.turn_epoch <= case t.state when 'active' then h.turn_epoch when 'done' then (
                          select c.turn_epoch from heliograph.cards c
                           where c.project_id = t.project_id
                             and c.card_id = heliograph._deliverable_id(t.agent_turn_id)) end
                    order by l.turn_epoch desc limit 1) x),
           case when t.state = 'active' then h.turn_epoch end) as turn_epoch,
       t.outcome, t.attempts, t.max_attempts, t.defer_count, t.depth, t.message_type, t.parent_turn_id,
       t.parent_call_id,
       case when t.state = 'active' then h.due_at end as due_at,
       case when t.state = 'active' then h.waiting_tool_count end as waiting_tool_count,
       case when t.state = 'active' then h.resume_deadline end as resume_deadline,
       case when t.state = 'active' then h.stop_requested_at end as stop_requested_at,
       -- for display only; no guard reads it (L0-16, L0-17)
       case when t.state <> 'active' then null
            when h.status = 'suspended' then 'awaiting_tool_result'
            when h.status = 'running' and w.tool is not null then 'executing_tool'
            when h.status = 'running' then 'thinking' end as activity,
       case when t.state = 'active' then w.tool end as current_tool,
       case when t.state = 'done' then heliograph._deliverable_id(t.agent_turn_id) end as deliverable_card_id,
       t.context_box_id, t.output_box_id, t.created_at, t.expires_at, t.finished_at,
       -- as _owner_at, whose tables a reader may not read
       heliograph._signal_id((
           with recursive owner (run_id, forked_from, forked_seq) as (
               select r.run_id, r.forked_from, r.forked_seq from heliograph.runs r
                where r.project_id = t.project_id and r.run_id = t.run_id
               union all
               select r.run_id, r.forked_from, r.forked_seq from owner o
                 join heliograph.runs r on r.project_id = t.project_id and r.run_id = o.forked_from
                where t.cause_seq <= o.forked_seq)
           select o.run_id from owner o where t.cause_seq > coalesce(o.forked_seq, 0)), t.cause_seq) as cause_id,
       heliograph._signal_id(t.run_id, t.activation_seq) as activation_id, t.budgets,
       t.priority, t.result_fields, t.actor, t.state = 'active' as is_active
  from heliograph.agent_turns t
  join heliograph.agent_state_head h using (project_id, agent_id)
  left join lateral (select w.tool from heliograph.turn_waiting_tools w
                      where t.state = 'active' and w.project_id = t.project_id
                        and w.agent_turn_id = t.agent_turn_id and w.state = 'open'
                      order by w.position desc limit 1) w on true;

-- wait_overview: the calls of turns, inline ones included
create view heliograph.wait_overview as
select w.project_id, w.agent_turn_id as turn_id, w.tool_call_id as call_id, t.agent_id, t.run_id, w.position, w.step_id,
       w.tool, w.kind, w.effect, w.state, w.status, w.deadline, w.after_execution, w.child_turn_id,
       case when w.state = 'resolved' then heliograph._result_id(w.agent_turn_id, w.tool_call_id) end as result_card_id,
       w.resolved_position, w.duplicates, w.opened_at, w.resolved_at, w.opened_seq, w.resolved_seq
  from heliograph.turn_waiting_tools w
  join heliograph.agent_turns t using (project_id, agent_turn_id);

-- delegation_overview: the status of delegated turns (CTL-26, G-22), computed from the tables alone
create view heliograph.delegation_overview as
select w.project_id, w.agent_turn_id as turn_id, w.tool_call_id as call_id, p.run_id, w.position, w.tool as agent,
       w.child_turn_id as task_id,
       case when o.outcome in ('success', 'partial') then 'completed'
            when o.outcome is not null then 'failed'
            when exists (select from heliograph.leases l
                          where l.project_id = t.project_id and l.agent_id = t.agent_id
                            and l.agent_turn_id = t.agent_turn_id)
            then 'in_progress' else 'accepted' end as status,
       o.outcome, w.deadline, w.opened_at, w.resolved_at
  from heliograph.turn_waiting_tools w
  join heliograph.agent_turns p using (project_id, agent_turn_id)
  left join heliograph.agent_turns t on t.project_id = w.project_id and t.agent_turn_id = w.child_turn_id
 cross join lateral (  -- the result that the parent has received; without one, the outcome of the child
       select case when w.status = 'success' then coalesce(t.outcome, w.status)
                   else coalesce(w.status, t.outcome) end as outcome) o
 where w.kind = 'child';

-- inbox_overview: the messages of turns, under the names of the specification
create view heliograph.inbox_overview as
select i.project_id, i.agent_turn_id as turn_id, i.inbox_id, t.agent_id, i.message_type, i.status, i.turn_epoch,
       coalesce(i.correlation_id, heliograph._signal_id(t.run_id, t.cause_seq)) as correlation_id,
       i.applied, i.report_status, i.payload_box_id, c.payload_card_id, i.actor, i.next_retry_at,
       i.retry_count, i.defer_reason, i.created_at, i.consumed_at,
       -- trace and lineage (L0-30), and a result by the names of the specification (L0-106)
       t.run_id as trace_id, heliograph._signal_id(t.run_id, t.activation_seq) as parent_step_id, t.parent_turn_id,
       case when i.message_type in ('tool_result', 'timeout') then i.correlation_id end as tool_call_id,
       w.after_execution,
       c.payload_card_id as tool_result_card_id
  from heliograph.agent_inbox i
  join heliograph.agent_turns t using (project_id, agent_turn_id)
  left join heliograph.turn_waiting_tools w
         on w.project_id = i.project_id and w.agent_turn_id = i.agent_turn_id and w.tool_call_id = i.correlation_id
            and i.message_type in ('tool_result', 'timeout')
 cross join lateral (
       select case when i.applied then heliograph._result_id(i.agent_turn_id, i.correlation_id) end
       ) c (payload_card_id);

-- edge_overview: what turns have asked of others and received from them (L0-31, L0-37 to L0-39), numbered within a turn
create view heliograph.edge_overview as
-- the edges of a call: its request, and the response of another program or of a child, its result
select w.project_id, w.agent_turn_id as turn_id,
       row_number() over (partition by w.project_id, w.agent_turn_id
                          order by e.seq nulls first, e.created_at, e.phase, e.place) as edge_id,
       case when w.kind = 'child' then 'join' when e.phase = 'request' then 'tool_call' else 'report' end as primitive,
       e.phase as edge_phase, t.run_id, t.agent_id, w.tool_call_id as call_id, w.child_turn_id as other_turn_id,
       heliograph._signal_id(t.run_id, e.cause_seq) as cause_id, e.created_at
  from heliograph.turn_waiting_tools w
  join heliograph.agent_turns t using (project_id, agent_turn_id)
 cross join lateral (
       values ('request', w.opened_seq, t.activation_seq, w.opened_at, w.position),
              ('response', w.resolved_seq, coalesce(w.resolved_seq, t.activation_seq), w.resolved_at,
               w.resolved_position)
       ) e (phase, seq, cause_seq, created_at, place)
 where e.phase = 'request' or (w.state = 'resolved' and w.kind <> 'inline')
union all
-- the message that begins a turn is its edge, too, and the first one (L0-31)
select i.project_id, i.agent_turn_id, 0, 'enqueue', 'request', t.run_id, t.agent_id, null, t.parent_turn_id,
       coalesce(i.correlation_id, heliograph._signal_id(t.run_id, t.cause_seq)), i.created_at
  from heliograph.agent_inbox i
  join heliograph.agent_turns t using (project_id, agent_turn_id)
 where i.message_type in ('turn', 'ui_action');

-- _as_time: a number of microseconds since 1970, or a text, as a time; null for any other value, for words like 'now'
--   or 'infinity', and for years that clients in other languages cannot represent. Most texts have the plain form,
--   which is safe to cast.
create function heliograph._as_time(p_at jsonb) returns timestamptz
    language plpgsql stable as $$
declare
    v_text constant text := p_at #>> '{}';
begin
    if jsonb_typeof(p_at) = 'number' then
        return case when p_at::numeric between -62e15 and 253e15  -- the years 6 to 9987
                    -- first to a bigint: 1e-400 is no float8
                    then timestamptz 'epoch' + p_at::bigint * interval '1 microsecond' end;
    end if;
    if v_text ~ '^(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])'
                 'T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]0\d:[0-5]\d)$' then
        return v_text::timestamptz;
    end if;
    if (v_text ~ '^\s*\d') is not true then
        return null;
    end if;
    begin
        return case when v_text::timestamptz between '0002-01-01' and '9998-12-31' then v_text::timestamptz end;
    exception when data_exception then
        return null;
    end;
end $$;

-- _time_of: the time of a signal: that of its source, or of its commit. p_at: `at` of its entry: a time, see _as_time;
--   or the distance from the time of the first signal of the commit, a number below 1e13; absent for the same time.
--   p_place: its index in its commit, from 0. p_first: `at` of the first entry. p_recorded_at: the time of the commit.
create function heliograph._time_of(p_at jsonb, p_place bigint, p_first jsonb, p_recorded_at timestamptz)
    returns timestamptz language plpgsql stable as $$
begin
    if p_place = 0 or p_at is null then
        return coalesce(heliograph._as_time(p_first), p_recorded_at);
    elsif jsonb_typeof(p_at) = 'number' then
        if abs(p_at::numeric) < 1e13 then
            return coalesce(heliograph._as_time(p_first) + p_at::bigint * interval '1 microsecond', p_recorded_at);
        end if;
    end if;
    return coalesce(heliograph._as_time(p_at), p_recorded_at);
end $$;

-- signal_log: the signals of logs, one row each; those that a fork shares are in the log of their own run
create view heliograph.signal_log as
select s.project_id, s.run_id, s.seq as commit_seq, s.seq + e.n - 1 as seq, heliograph._signal_id(s.run_id,
        s.seq + e.n - 1) as id,
       e.entry ->> 'name' as name, coalesce(e.entry -> 'payload', '{}') as payload,
       -- writers may store an invalid time, so readers ignore it
       heliograph._time_of(e.entry -> 'at', e.n - 1, f.at, s.at) as timestamp, e.entry ->> 'agent' as agent,
       case jsonb_typeof(e.entry -> 'parent')
           when 'number' then heliograph._signal_id(s.run_id, s.seq + heliograph._as_whole(e.entry -> 'parent'))
           else heliograph._full_id(s.run_id, e.entry ->> 'parent') end as parent,
       s.agent_turn_id as turn_id, coalesce(e.entry ->> 'trust', 'trusted') as trust,
       s.at as recorded_at,
       -- whether it was recorded before its reaction, which may have followed since
       coalesce(e.entry -> 'is_pending' = 'true', false) as is_deferred
  from heliograph.signals s
 cross join lateral (select s.entries #> '{0,at}' as at offset 0) f  -- once for each commit, which it decompresses
 cross join lateral jsonb_array_elements(s.entries) with ordinality e (entry, n);

-- read_log: return up to p_limit signals of a run after position p_after, in order; of a fork, those that it shares
--   too, with the run_id and the id of their own run. A page costs the same wherever it begins.
--   raises: see _enter
create function heliograph.read_log(p_project text, p_run_id text, p_after bigint, p_limit integer)
    returns setof heliograph.signal_log language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
begin
    return query select l.* from heliograph._log_parts(v_project, p_run_id) p
     cross join lateral (select greatest(p_after, p.after) as after offset 0) a
     cross join lateral (  -- the commit with the first signal of the page; if that is pruned, the first commit
           select f.seq, f.count from (
               (select s.seq, s.count from heliograph.signals s
                 where s.project_id = v_project and s.run_id = p.run_id and s.seq <= a.after + 1
                 order by s.seq desc limit 1)
               union all
               (select s.seq, s.count from heliograph.signals s
                 where s.project_id = v_project and s.run_id = p.run_id and s.seq > a.after + 1
                 order by s.seq limit 1)) f
            order by f.seq limit 1) f
     cross join lateral (
           select l.* from heliograph.signal_log l
            where l.project_id = v_project and l.run_id = p.run_id and l.seq > a.after and l.seq <= p.upto
              and l.commit_seq between f.seq and least(p.upto, f.seq + f.count + p_limit)
            order by l.seq limit p_limit) l
     where a.after < p.upto
     order by l.seq limit p_limit;
end $$;

-- recording_overview: the recordings of runs: their names and tags. Rows of earlier versions may have tags of null
create view heliograph.recording_overview as
select project_id, run_id, target, outcome, recording_name as name, array_remove(recording_tags, null) as tags,
       created_at as started_at
  from heliograph.runs
 where recording_tags is not null;

-- card_overview: the cards of turns, deliverables included, with their contents
create view heliograph.card_overview as
select c.project_id, c.card_id, c.agent_turn_id as turn_id, c.turn_epoch, c.kind,
       coalesce((select b.content from heliograph.blobs b
                  where b.project_id = c.project_id and b.blob_id = c.content ->> '$blob'), c.content) as content,
       c.created_at, c.box_id, c.position
  from heliograph.agent_turns t
 cross join lateral (  -- by the boxes that the turn has written to: the cards of a box are adjacent in its index
       select 'box_' || t.agent_turn_id as box_id
        union all
       select b.box_id from heliograph.boxes b
        where b.project_id = t.project_id and b.writer_turn_id = t.agent_turn_id) w
  join heliograph.cards c on c.project_id = t.project_id and c.box_id = w.box_id
       and c.agent_turn_id = t.agent_turn_id;

-- lease_overview: the leases of turns: which workers have owned them, and when
create view heliograph.lease_overview as
select t.project_id, t.agent_turn_id as turn_id, t.agent_id, l.turn_epoch, l.owner, l.started_at, l.ended_at,
       l.signals_emitted, l.started_seq, t.run_id
  from heliograph.agent_turns t
 cross join lateral (  -- offset 0: in a busy project, a plan for all leases looks cheaper and reads them all
       select x.* from heliograph.leases x
        where x.project_id = t.project_id and x.agent_id = t.agent_id and x.agent_turn_id = t.agent_turn_id offset 0) l;
