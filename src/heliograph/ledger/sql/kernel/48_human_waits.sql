-- Time that a turn waits for humans does not count toward its ttl_seconds. A turn that waits only for answers of humans
-- has human_wait_since, and sweep_expired skips it. When it resumes, expires_at moves forward by the time that it
-- waited, and human_wait_time adds it up. A turn that waits for delegated turns is credited with the time for which
-- these waited for humans, but never with more than its own suspension. So every turn still ends in bounded time once
-- no question is open (K19): each delegated turn has a ttl_seconds of its own.

-- _span: the time between two moments as seconds, so that adding it to a timestamptz does not depend on a time zone; 0
--   for a negative one.
create function heliograph._span(p_from timestamptz, p_to timestamptz) returns interval
    language sql immutable as $$
    select make_interval(secs => greatest(0, extract(epoch from p_to - p_from))::float8)
$$;

-- _waits_for_child: whether a turn waits for a delegated turn, or did so until a result of p_now. The human_wait_since
--   of such a turn comes from _defer_expiry. It is no measure later: since then the delegated turn may have worked.
create function heliograph._waits_for_child(p_project text, p_turn_id text, p_now timestamptz) returns boolean
    language sql stable as $$
    select exists (
        select from heliograph.turn_waiting_tools w
         where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.kind = 'child'
           and (w.state = 'open' or w.resolved_at = p_now))
$$;

-- _human_wait_time: the time for which the delegated turns of a suspended turn have waited for humans, at most the time
--   since its suspension at p_since. p_with_open: include delegated turns that have not ended.
create function heliograph._human_wait_time(
    p_project text, p_turn_id text, p_since timestamptz, p_with_open boolean, p_now timestamptz
) returns interval language plpgsql stable as $$
begin
    return (
        select least(heliograph._span(p_since, p_now), coalesce(sum(coalesce(c.human_wait_time, '0') + case
                   when c.human_wait_since is not null and (c.finished_at is not null
                        or not heliograph._waits_for_child(p_project, c.agent_turn_id, p_now))
                   then heliograph._span(c.human_wait_since, coalesce(c.finished_at, p_now))
                   when h.status = 'suspended' and h.active_agent_turn_id = c.agent_turn_id
                   then heliograph._human_wait_time(p_project, c.agent_turn_id, h.moved_at, true, p_now)
                   else '0' end), '0'))
          from heliograph.turn_waiting_tools w
         cross join lateral (
               select x.agent_turn_id, x.agent_id, x.human_wait_time, x.human_wait_since, x.finished_at
                 from heliograph.agent_turns x
                where x.project_id = p_project and x.agent_turn_id = w.child_turn_id offset 0) c
         cross join lateral (
               select x.status, x.active_agent_turn_id, x.moved_at from heliograph.agent_state_head x
                where x.project_id = p_project and x.agent_id = c.agent_id offset 0) h
         where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.kind = 'child'
           and (w.resolved_at >= p_since or (p_with_open and w.state = 'open')));
end $$;

-- _credit_human_wait_time: credit turns with their time of waiting, after a result for a suspended turn, or a stop.
--   p_turns: [{turn_id, since, resumes, with_open}]; since: the time of its suspension. The expires_at of a turn that
--   resumes moves forward by the time that it waited for humans. with_open: it resumes although delegated turns have
--   not ended, and these count too. A turn that remains suspended, and now waits only for humans, gets its
--   human_wait_since.
--   Turns of a run that is ending get no credit, so that the run ends. The caller holds the heads and the runs.
create function heliograph._credit_human_wait_time(p_project text, p_turns jsonb, p_now timestamptz) returns void
    language plpgsql as $$
begin
    update heliograph.agent_turns t
       set human_wait_since = case when f.waits_on then p_now - f.waited end,
           human_wait_time = nullif(coalesce(t.human_wait_time, '0') + case when f.resumes then f.waited else '0' end,
                                    '0'),
           expires_at = t.expires_at + case when f.resumes then f.waited else '0' end
      from (select x.at, i.resumes, not i.resumes and r.status = 'running' as waits_on,
                   case when x.human_wait_since is not null
                             and not heliograph._waits_for_child(p_project, i.turn_id, p_now)
                        then heliograph._span(x.human_wait_since, p_now)
                        else heliograph._human_wait_time(p_project, i.turn_id, i.since,
                                                         coalesce(i.with_open, x.human_wait_since is not null),
                                                         p_now) end as waited
              from jsonb_to_recordset(p_turns) as i (turn_id text, since timestamptz, resumes boolean,
                                                     with_open boolean)
             cross join lateral (
                   select y.ctid as at, y.human_wait_since, y.run_id from heliograph.agent_turns y
                    where y.project_id = p_project and y.agent_turn_id = i.turn_id offset 0) x
             cross join lateral (
                   select y.status from heliograph.runs y
                    where y.project_id = p_project and y.run_id = x.run_id offset 0) r) f
     where t.ctid = f.at and (f.waits_on or f.resumes and f.waited > '0' or t.human_wait_since is not null);
end $$;

-- _defer_expiry: keep an expired turn if its delegated turns have waited for humans, and its ttl_seconds are not over
--   without that time. No sweep checks it again before it resumes, because its delegated turns end in bounded time.
--   Returns whether the turn was kept.
--   The caller holds the head.
create function heliograph._defer_expiry(
    p_project text, p_turn heliograph.agent_turns, p_now timestamptz
) returns boolean
    language plpgsql as $$
declare
    v_waited interval;
begin
    select heliograph._human_wait_time(p_project, p_turn.agent_turn_id, h.moved_at, true, p_now) into v_waited
      from heliograph.agent_state_head h
     where h.project_id = p_project and h.agent_id = p_turn.agent_id and h.status = 'suspended'
       and h.active_agent_turn_id = p_turn.agent_turn_id
       and not exists (select from heliograph.turn_waiting_tools w
                        where w.project_id = p_project and w.agent_turn_id = p_turn.agent_turn_id
                          and w.state = 'open' and w.kind in ('tool', 'timer'))
       and exists (select from heliograph.turn_waiting_tools w
                    where w.project_id = p_project and w.agent_turn_id = p_turn.agent_turn_id
                      and w.state = 'open' and w.kind = 'child');
    if v_waited is null or p_turn.expires_at + v_waited <= p_now then
        return false;
    end if;
    update heliograph.agent_turns set human_wait_since = p_now - v_waited
     where project_id = p_project and agent_turn_id = p_turn.agent_turn_id;
    return true;
end $$;

-- _question: the question of a call to a human, truncated; null if no card records it.
create function heliograph._question(p_project text, p_turn_id text, p_call_id text) returns text
    language sql stable as $$
    select left(heliograph._content(p_project, c.content) #>> '{arguments,question}', 200)
      from heliograph.agent_turns t
      join heliograph.cards c on c.project_id = t.project_id and c.box_id = t.output_box_id and c.kind = 'tool.call'
     where t.project_id = p_project and t.agent_turn_id = p_turn_id
       and heliograph._content(p_project, c.content) ->> 'tool_call_id' = p_call_id
     order by c.position limit 1
$$;

-- _expiry_message: the error message of a turn that ends at its expires_at. It names the setting, the time that did not
--   count, and the open calls.
create function heliograph._expiry_message(p_project text, p_turn heliograph.agent_turns) returns text
    language sql stable as $$
    select format('not finished within its ttl_seconds, %s s',
                  round(extract(epoch from p_turn.expires_at - coalesce(p_turn.human_wait_time, '0')
                                             - p_turn.created_at), 3))
           || case when coalesce(p_turn.human_wait_time, '0') = '0' then ''
                   else format(', and %s s of waiting for people',
                               round(extract(epoch from p_turn.human_wait_time), 3)) end
           || coalesce((
               select '; still open: ' || string_agg(case w.kind
                          when 'human' then format('call %s asks a person "%s"', w.tool_call_id, coalesce(
                               heliograph._question(p_project, p_turn.agent_turn_id, w.tool_call_id), w.tool))
                          else format('call %s of %s', w.tool_call_id, w.tool) end, ', ' order by w.position)
                 from (select x.* from heliograph.turn_waiting_tools x
                        where x.project_id = p_project and x.agent_turn_id = p_turn.agent_turn_id
                          and x.state = 'open' and x.kind <> 'inline' order by x.position limit 3) w), '')
$$;
