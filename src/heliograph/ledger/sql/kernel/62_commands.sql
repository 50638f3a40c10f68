-- Commands for tools that fetch their work from the database instead of a message bus (K18).

-- take_commands: take up to p_limit open commands for tools that fetch their work: by priority, the oldest first (K18).
--   p_tools: [name], or [{tool, pool}] for the commands of another pool than the default one. A
--   command that is taken is hidden for p_visible_seconds. If the tool has not reported by then, another call may take
--   it, so tools deduplicate by turn and call id.
--   Returns [{turn_id, call_id, tool, body, deadline, delivery}]. body contains the token for the report, if the call
--   has one. delivery: how often the command was delivered, including this time.
--   raises: see _enter; 22023 for a limit that is not between 1 and 1000, seconds that are not between 0 and a day
--   locks:  the commands taken, skipping rows that another transaction has locked
create function heliograph.take_commands(
    p_project text, p_tools jsonb, p_limit integer, p_visible_seconds float8, p_now timestamptz
) returns jsonb language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_answer jsonb;
begin
    perform heliograph._check_json(p_tools);
    perform heliograph._check_tools(p_tools);
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    elsif not coalesce(p_visible_seconds between 0 and 86400, false) then
        raise exception using errcode = '22023',
            message = format('visible_seconds must be between 0 and 86400, not %s', p_visible_seconds);
    end if;
    with due as materialized (
        select c.key
          from (select distinct case jsonb_typeof(e) when 'object' then e ->> 'tool' else e #>> '{}' end as tool,
                                coalesce(e ->> 'pool', 'default') as pool
                  from jsonb_array_elements(p_tools) e) t
         cross join lateral (
               select o.key, o.priority, o.outbox_id from heliograph.outbox o
                where o.project_id = p_project and o.tool = t.tool and o.pool = t.pool and o.kind = 'cmd'
                  and o.published_at is null and coalesce(o.hidden_until, p_now) <= p_now
                order by o.priority desc, o.outbox_id limit p_limit for update skip locked) c
         order by c.priority desc, c.outbox_id limit p_limit
    ), taken as (
        update heliograph.outbox o
           set hidden_until = p_now + make_interval(secs => p_visible_seconds), deliveries = o.deliveries + 1
          from due d
         where o.project_id = p_project and o.key = d.key
        returning o.outbox_id, o.agent_turn_id, o.call_id, o.tool, o.body, o.deliveries, o.priority
    )
    select jsonb_agg(jsonb_build_object('turn_id', k.agent_turn_id, 'call_id', k.call_id, 'tool', k.tool, 'body',
                                        k.body,
                                        'deadline', w.deadline, 'delivery', k.deliveries)
                     order by k.priority desc, k.outbox_id)
      into v_answer
      from taken k
     cross join lateral (
           select x.deadline from heliograph.turn_waiting_tools x
            where x.project_id = p_project and x.agent_turn_id = k.agent_turn_id
              and x.tool_call_id = k.call_id offset 0) w;
    return coalesce(v_answer, '[]');
end $$;

-- _check_tools: reject tools that are neither names nor {tool, pool}.
--   raises: 22023 naming the key
create function heliograph._check_tools(p_tools jsonb) returns void
    language plpgsql immutable as $$
begin
    perform heliograph._check_keys('p_tools[]', p_tools, '{tool,pool}');
    perform heliograph._check_type('p_tools[]', p_tools, 'tool', 'string');
    perform heliograph._check_strings('p_tools[]', (
        select coalesce(jsonb_agg(case jsonb_typeof(e) when 'object' then e -> 'tool' else e end), '[]')
          from jsonb_array_elements(p_tools) e));
end $$;
