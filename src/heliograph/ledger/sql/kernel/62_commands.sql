-- Commands for tools that fetch their work from the database instead of a message bus (K18), and the halts of commands:
-- a command may have a `halt` in its body, which is sent if its turn ends or continues without the result.

-- take_commands: take up to p_limit open commands for tools that fetch their work: by priority, the oldest first (K18).
--   p_tools: [name], or [{tool, pool}] for the commands of another pool than the default one. A command that is taken
--   is hidden for p_visible_seconds. If the tool has not reported by then, another call may take it, so tools
--   deduplicate by turn and call id.
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
    select jsonb_agg(jsonb_build_object('turn_id', k.agent_turn_id, 'call_id', k.call_id, 'tool', k.tool,
                                        'body', c.body, 'deadline', c.deadline, 'delivery', k.deliveries)
                     order by k.priority desc, k.outbox_id)
      into v_answer
      from taken k cross join lateral heliograph._command(p_project, k.agent_turn_id, k.call_id, k.body) c;
    return coalesce(v_answer, '[]');
end $$;

-- _command: the body of a command as its tool receives it (L0-51), and the deadline of its call. p_body: that of the
--   outbox, which lacks what the call and its turn have. Earlier versions stored everything.
create function heliograph._command(p_project text, p_turn_id text, p_call_id text, p_body jsonb)
    returns table (body jsonb, deadline timestamptz) language sql stable as $$
    select jsonb_build_object(
               'tool_call_id', w.tool_call_id, 'agent_turn_id', w.agent_turn_id, 'turn_epoch', w.epoch,
               'agent_id', t.agent_id, 'run_id', t.run_id, 'step_id', w.step_id, 'tool_name', w.tool,
               'after_execution', w.after_execution) || p_body,
           w.deadline
      from heliograph.turn_waiting_tools w
      join heliograph.agent_turns t on t.project_id = p_project and t.agent_turn_id = p_turn_id
     where w.project_id = p_project and w.agent_turn_id = p_turn_id and w.tool_call_id = p_call_id
    offset 0
$$;

-- command_pools: list, in order, the pools that have commands of a tool to take. If each destination has its own pool,
--   and a worker takes the commands of each pool separately, a slow destination does not delay the others.
--   raises: see _enter
create function heliograph.command_pools(p_project text, p_tool text, p_now timestamptz) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    return (
        -- steps from pool to pool through an index, and so does not read each waiting command
        with recursive found (pool) as (
            (select o.pool from heliograph.outbox o
              where o.project_id = p_project and o.tool = p_tool and o.kind = 'cmd' and o.published_at is null
              order by o.pool limit 1)
            union all
            select n.pool
              from found f
             cross join lateral (
                   select o.pool from heliograph.outbox o
                    where o.project_id = p_project and o.tool = p_tool and o.kind = 'cmd' and o.published_at is null
                      and o.pool > f.pool
                    order by o.pool limit 1) n)
        select coalesce(jsonb_agg(f.pool order by f.pool), '[]') from found f
         where exists (select from heliograph.outbox o
                        where o.project_id = p_project and o.tool = p_tool and o.kind = 'cmd'
                          and o.published_at is null and o.pool = f.pool
                          and coalesce(o.hidden_until, p_now) <= p_now));
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

-- _acknowledge: delete the commands of calls that are resolved or closed, with their tokens (K18, S14). One that waits
--   for its start under a rate limit, and that nobody took, remains as published, without its token: reset_rate reads
--   there that its call has not started.
--   Returns the deleted commands, by key.
--   locks:  the commands, ascending by key (K37)
create function heliograph._acknowledge(p_project text, p_keys text[], p_now timestamptz) returns heliograph.outbox[]
    language plpgsql as $$
declare
    v_deleted heliograph.outbox[];
begin
    with locked as materialized (
        select y.key, y.deliveries = 0 and y.hidden_until is not null as has_not_started from heliograph.outbox y
         where y.project_id = p_project and heliograph._is_unpublished(y.published_at) and y.key = any (p_keys)
         order by y.key for update
    ), kept as (
        update heliograph.outbox o set published_at = p_now, body = heliograph._as_object(o.body) - 'token'
          from locked l where l.has_not_started and o.project_id = p_project and o.key = l.key
    ), deleted as (  -- by key, because a relay may move them meanwhile
        delete from heliograph.outbox o using locked l
         where not l.has_not_started and o.project_id = p_project and o.key = l.key returning o as command
    )
    select array_agg(d.command order by (d.command).key) into v_deleted from deleted d;
    return v_deleted;
end $$;

-- _halt_of: the row of the outbox that halts a command's work, because nobody waits for it any more; no row if the
--   command has no `halt` in its body, or nobody has received it.
create function heliograph._halt_of(p_command heliograph.outbox, p_now timestamptz) returns table (
    project_id text, key text, kind text, agent_turn_id text, call_id text, body jsonb, created_at timestamptz,
    due_at timestamptz
) language sql immutable as $$
    select p_command.project_id, 'halt:' || p_command.agent_turn_id || ':' || p_command.call_id, 'halt',
           p_command.agent_turn_id, p_command.call_id, p_command.body -> 'halt', p_now, p_now
     where p_command.deliveries > 0 and jsonb_typeof(p_command.body -> 'halt') = 'object'
$$;

-- take_halts: take up to p_limit halts that are due, the oldest first, for a worker that sends them. Each is due again
--   after p_visible_seconds, until mark_published (80_outbox.sql) records that it has been sent or abandoned.
--   p_busy: the gateways whose halts are not taken, so that a worker that waits for a slow one takes those for others.
--   Returns [{key, turn_id, call_id, body, created_at}]. body: the `halt` of the command.
--   raises: see _enter; 22023 for a limit that is not between 1 and 1000, seconds that are not between 0 and a day
--   locks:  the halts taken, skipping rows that another transaction has locked
create function heliograph.take_halts(
    p_project text, p_busy jsonb, p_limit integer, p_visible_seconds float8, p_now timestamptz
) returns jsonb language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_answer jsonb;
begin
    perform heliograph._check_json(p_busy);
    perform heliograph._check_strings('p_busy[]', p_busy);
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    elsif not coalesce(p_visible_seconds between 0 and 86400, false) then
        raise exception using errcode = '22023',
            message = format('visible_seconds must be between 0 and 86400, not %s', p_visible_seconds);
    end if;
    with due as materialized (
        select o.key from heliograph.outbox o
         where o.project_id = p_project and o.kind = 'halt' and o.published_at is null and o.due_at <= p_now
           and not coalesce(o.body ->> 'gateway' = any (array(select jsonb_array_elements_text(p_busy))), false)
         order by o.due_at, o.outbox_id limit p_limit for update skip locked
    ), taken as (
        update heliograph.outbox o
           set due_at = p_now + make_interval(secs => p_visible_seconds), deliveries = o.deliveries + 1
          from due d
         where o.project_id = p_project and o.key = d.key
        returning o.outbox_id, o.key, o.agent_turn_id, o.call_id, o.body, o.created_at
    )
    select jsonb_agg(jsonb_build_object('key', k.key, 'turn_id', k.agent_turn_id, 'call_id', k.call_id, 'body', k.body,
                                        'created_at', k.created_at) order by k.outbox_id)
      into v_answer
      from taken k;
    return coalesce(v_answer, '[]');
end $$;
