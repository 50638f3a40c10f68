-- Resetting a rate limit: the tokens of calls that ended before their start come back (RTE-08, G-24).

-- reset_rate: let a bucket forget the tokens of calls that ended before their start, for example because somebody
--   stopped them. Only an operator may call this. The bucket is then at worst empty at the latest start of the other
--   calls, or now. So no window has too many starts: those until then are a part of those that the bucket admitted, and
--   those afterwards take only what it is refilled with.
--   Answers 'reset', 'unchanged', or 'unknown' for a bucket that no call uses.
--   raises: see _enter
--   locks:  the bucket
create function heliograph.reset_rate(p_project text, p_kind text, p_name text, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_bucket heliograph.rate_buckets;
    v_last bigint;
begin
    select b.* into v_bucket from heliograph.rate_buckets b
     where b.project_id = p_project and b.kind = p_kind and b.name = p_name order by b.name for update;
    if not found then
        return '"unknown"';
    end if;
    v_last := heliograph._nanoseconds(heliograph._latest_start(p_project, p_kind, p_name, p_now));
    update heliograph.rate_buckets b
       set full_at = least(b.full_at, v_last + b.tokens_max * heliograph._refill_ns(b)),
           last_start = least(b.last_start, v_last), last_day = least(b.last_start, v_last) / 86400000000000
     where b.project_id = p_project and b.kind = p_kind and b.name = p_name
       and b.full_at > v_last + b.tokens_max * heliograph._refill_ns(b);
    return to_jsonb(case when found then 'reset'::text else 'unchanged' end);
end $$;

-- _latest_start: the latest start of the calls that have taken tokens of a bucket and have started or may still start;
--   p_now if all of these are earlier. The records show which calls ended before their start: an inline call still has
--   its mark, nobody took a command, nobody claimed a child. Clocks do not, because those of workers differ.
--   The caller holds the bucket.
create function heliograph._latest_start(p_project text, p_kind text, p_name text, p_now timestamptz)
    returns timestamptz language sql stable as $$
    select greatest(p_now, max((w.rate ->> 'starts_at')::timestamptz))
      from heliograph.turn_waiting_tools w
     where w.project_id = p_project and (w.rate ->> 'starts_at')::timestamptz > p_now
       and w.rate -> 'rates' @> jsonb_build_array(jsonb_build_object('kind', p_kind, 'name', p_name))
       and (w.state = 'open' or case w.kind
            when 'inline' then not w.rate ? 'is_waiting'
            when 'child' then not exists (
                select from heliograph.agent_turns t
                 where t.project_id = p_project and t.agent_turn_id = w.child_turn_id and t.state = 'done'
                   and not exists (select from heliograph.leases l
                                    where l.project_id = p_project and l.agent_id = t.agent_id
                                      and l.agent_turn_id = t.agent_turn_id))
            else not exists (
                select from heliograph.outbox o
                 where o.project_id = p_project and o.key = 'cmd:' || w.agent_turn_id || ':' || w.tool_call_id
                   and o.deliveries = 0) end)
$$;
