-- Memories: texts that agents keep beyond their turns and runs. They belong to no turn, so pruning of turns keeps them.

-- remember: store memories: texts that agents keep beyond their turns and runs.
--   p_items: [{memory_id, agent, text, metadata, trust, ttl_seconds}]. agent: the agent that the memory belongs to;
--   null: all agents of the project. trust: 'untrusted' for a text that follows from untrusted content. ttl_seconds
--   null: until it is deleted.
--   Returns [{memory_id, outcome}] in the order of p_items. 'remembered'. 'duplicate': the memory exists with the same
--   agent, text and metadata. 'conflict': another memory has this id. 'rejected' with code and message:
--   memory_too_large, too_many_memories.
--   raises: see _enter; 22023 for an invalid item
--   locks:  ids that another caller creates at the same moment, ascending
create function heliograph.remember(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_limits heliograph.project_limits := heliograph._limits(p_project);
    v_wrong text := (select min(heliograph._wrong_memory(i)) from jsonb_array_elements(p_items) i);
    v_each record;
    v_answer jsonb;
    v_answers jsonb := '{}';
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{memory_id,agent,text,metadata,trust,ttl_seconds}');
    v_wrong := coalesce(v_wrong, (
        select min('trust must be trusted or untrusted') from jsonb_array_elements(p_items) i
         where not coalesce(i ->> 'trust' in ('trusted', 'untrusted'), true)));
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
    for v_each in
        select i.item, i.n from jsonb_array_elements(p_items) with ordinality i (item, n)
         order by i.item ->> 'memory_id' collate "C", i.n
    loop
        v_answer := heliograph._known_memory(p_project, v_each.item);
        v_answer := coalesce(v_answer, heliograph._reject_memory(p_project, v_each.item, v_limits));
        if v_answer is null then
            insert into heliograph.memories (project_id, memory_id, agent, text, metadata, is_untrusted, created_at,
                                             expires_at)
            values (p_project, v_each.item ->> 'memory_id', v_each.item ->> 'agent', v_each.item ->> 'text',
                    coalesce(nullif(v_each.item -> 'metadata', 'null'), '{}'),
                    coalesce(v_each.item ->> 'trust' = 'untrusted', false), p_now,
                    p_now + make_interval(secs => (v_each.item ->> 'ttl_seconds')::float8))
            on conflict do nothing;
            v_answer := case when found then '{"outcome": "remembered"}' else heliograph._known_memory(p_project,
                    v_each.item) end;
        end if;
        v_answers := v_answers || jsonb_build_object(v_each.n::text, v_answer);
    end loop;
    return (select coalesce(jsonb_agg(jsonb_build_object('memory_id', i.item -> 'memory_id') || (v_answers -> i.n::text)
                                      order by i.n), '[]')
              from jsonb_array_elements(p_items) with ordinality i (item, n));
end $$;

-- _wrong_memory: null, or the problem of an item of remember.
create function heliograph._wrong_memory(p_item jsonb) returns text
    language sql immutable as $$
    select coalesce(heliograph._wrong_id('a memory id', p_item ->> 'memory_id'), case
        when jsonb_typeof(p_item -> 'text') is distinct from 'string' or p_item ->> 'text' !~ '\S'
            then 'the text of a memory must be a string that is not blank'
        when not coalesce(jsonb_typeof(p_item -> 'agent') in ('string', 'null'), true)
             or not coalesce(octet_length(p_item ->> 'agent') between 1 and 200, true)
        then 'the agent of a memory must have 1 to 200 bytes, or be null'
        when not coalesce(jsonb_typeof(p_item -> 'metadata') in ('object', 'null'), true)
            then 'the metadata of a memory must be an object, or null'
        when not coalesce(jsonb_typeof(p_item -> 'ttl_seconds') in ('number', 'null'), true)
             or not coalesce((p_item ->> 'ttl_seconds')::numeric between 1e-6 and 3162240000, true)
        then 'ttl_seconds must be above 0 and at most 100 years, or null' end)
$$;

-- _known_memory: the answer of remember for an id that exists; null for a new id.
create function heliograph._known_memory(p_project text, p_item jsonb) returns jsonb
    language sql stable as $$
    select jsonb_build_object('outcome', case
               when (m.agent is not distinct from p_item ->> 'agent') and m.text = p_item ->> 'text'
                    and m.metadata = coalesce(nullif(p_item -> 'metadata', 'null'), '{}') then 'duplicate'
                        else 'conflict' end)
      from heliograph.memories m where m.project_id = p_project and m.memory_id = p_item ->> 'memory_id'
$$;

-- _reject_memory: null, or the rejection of a memory. Concurrent callers may exceed the maximum number.
create function heliograph._reject_memory(
    p_project text, p_item jsonb, p_limits heliograph.project_limits
) returns jsonb
    language sql stable as $$
    select case when s.bytes > p_limits.memory_bytes_max
                then heliograph._over_limit('memory_too_large', format('the memory has %s bytes', s.bytes),
                                            p_limits.memory_bytes_max, 'store a shorter text', 'memory_bytes_max')
                when c.memories >= p_limits.memories_max
                then heliograph._over_limit(
                         'too_many_memories', format('%s memories of %s are kept', c.memories,
                                                     coalesce('agent ' || (p_item ->> 'agent'), 'the project')),
                         p_limits.memories_max, 'forget some, give them a time to live', 'memories_max') end
      from (select octet_length(p_item ->> 'text') + coalesce(octet_length(p_item ->> 'metadata'), 0) as bytes) s
     cross join lateral (
           select case when p_item ->> 'agent' is null
                  then (select count(*) from heliograph.memories m where m.project_id = p_project and m.agent is null)
                  else (select count(*) from heliograph.memories m where m.project_id = p_project
                        and m.agent = p_item ->> 'agent')
                  end as memories) c
$$;

-- recall: search the memories of p_agent and of the project; a p_agent of null searches those of all agents.
--   p_query: words that must all occur; quoted words in sequence; `or` between alternatives; a - before words that
--   must not occur (websearch_to_tsquery). An empty query matches every memory. Results come by rank, then newest
--   first. If the query is not all ASCII, its parts are also searched as plain text, because languages without spaces
--   have no words to search for. A search over all agents reads the newest memories_max memories.
--   Returns [{memory_id, agent, text, metadata, trust, created_at, rank}], at most p_limit.
--   raises: see _enter; 22023 for a limit that is not between 1 and 1000, and for a query of more than 8192 bytes
create function heliograph.recall(
    p_project text, p_query text, p_agent text, p_limit integer, p_now timestamptz
) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_most integer := (heliograph._limits(p_project)).memories_max;
    v_is_open boolean := coalesce(p_query, '') !~ '\S';
    v_words tsquery;
    v_parts text[];
begin
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    elsif octet_length(p_query) > 8192 then
        raise exception using errcode = '22023', message = 'p_query must have at most 8192 bytes';
    end if;
    v_words := websearch_to_tsquery('simple', coalesce(p_query, ''))
               || websearch_to_tsquery('english', coalesce(p_query, ''));
    if octet_length(p_query) <> length(p_query) then
        v_parts := array(select x from regexp_split_to_table(p_query, '[ "\t\n\r\f\v\u3000]+') x where x <> '');
    end if;
    return (
        select coalesce(jsonb_agg(to_jsonb(f) order by f.rank desc, f.created_at desc, f.memory_id), '[]')
          from (select m.memory_id, m.agent, m.text, m.metadata, m.created_at,
                       case when m.is_untrusted then 'untrusted' else 'trusted' end as trust,
                       case when v_is_open then 0 else round(ts_rank(m.words, v_words)::numeric, 4) end as rank
                  from (select * from (select * from heliograph.memories x
                                        where x.project_id = p_project and x.agent = p_agent
                                        order by x.created_at desc, x.memory_id limit v_most) own
                        union all
                        select * from (select * from heliograph.memories x
                                        where x.project_id = p_project and p_agent is not null and x.agent is null
                                        order by x.created_at desc, x.memory_id limit v_most) common
                        union all
                        select * from (select * from heliograph.memories x
                                        where x.project_id = p_project and p_agent is null
                                        order by x.created_at desc, x.memory_id limit v_most) everybody) m
                 where coalesce(m.expires_at, 'infinity') > p_now
                   and (v_is_open or m.words @@ v_words
                        or (cardinality(v_parts) > 0 and not exists (select from unnest(v_parts) x
                                                                     where position(x in m.text) = 0)))
                 order by rank desc, m.created_at desc, m.memory_id limit p_limit) f);
end $$;

-- forget: delete memories.
--   p_items: [{memory_id}].
--   Returns [{memory_id, outcome}] in the order of p_items: 'forgotten' or 'unknown'.
--   raises: see _enter
--   locks:  the memories, ascending
create function heliograph.forget(p_project text, p_items jsonb) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter(p_project);
    v_found text[] := array(
        select m.memory_id from heliograph.memories m
         where m.project_id = p_project and m.memory_id = any (array(
               select i ->> 'memory_id' from jsonb_array_elements(p_items) i))
         order by m.memory_id for update);
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{memory_id}');
    delete from heliograph.memories where project_id = p_project and memory_id = any (v_found);
    return (select coalesce(jsonb_agg(jsonb_build_object('memory_id', i.item -> 'memory_id', 'outcome',
                       case when i.item ->> 'memory_id' = any (v_found) then 'forgotten' else 'unknown' end)
                           order by i.n), '[]')
              from jsonb_array_elements(p_items) with ordinality i (item, n));
end $$;

-- _prune_memories: delete memories whose time to live is over. Returns {memories}.
--   locks:  the memories, skipping rows that another transaction has locked
create function heliograph._prune_memories(p_project text, p_limit integer, p_now timestamptz) returns jsonb
    language plpgsql as $$
declare
    v_ids text[] := array(
        select m.memory_id from heliograph.memories m
         where m.project_id = p_project and m.expires_at <= p_now
         order by m.expires_at, m.memory_id limit p_limit for update skip locked);
begin
    delete from heliograph.memories where project_id = p_project and memory_id = any (v_ids);
    return jsonb_build_object('memories', cardinality(v_ids));
end $$;
