-- Callbacks: a signed POST announces the end of a turn or a run to the callback_url of its request (CTL-23, G-23). The
-- commit of that end writes the callback. Attempts, delays and the last error are stored, so that any worker continues.

-- _create_turn_callbacks: write the callbacks of turns that end in this transaction.
--   The caller holds the heads.
create function heliograph._create_turn_callbacks(p_project text, p_turn_ids text[], p_now timestamptz) returns void
    language sql as $$
    insert into heliograph.callbacks (project_id, callback_id, run_id, turn_id, url, state, created_at, due_at)
    select p_project, heliograph._callback_id(p_project, 'turn:' || t.agent_turn_id), t.run_id, t.agent_turn_id,
           t.callback_url, 'due', p_now, p_now
      from heliograph.agent_turns t
     where t.project_id = p_project and t.agent_turn_id = any (p_turn_ids) order by t.agent_turn_id
$$;

-- _create_run_callbacks: write the callbacks of runs that end in this transaction.
--   The caller holds the runs.
create function heliograph._create_run_callbacks(p_project text, p_run_ids text[], p_now timestamptz) returns void
    language sql as $$
    insert into heliograph.callbacks (project_id, callback_id, run_id, turn_id, url, state, created_at, due_at)
    select p_project, heliograph._callback_id(p_project, 'run:' || r.run_id), r.run_id, null, r.callback_url, 'due',
           p_now, p_now
      from heliograph.runs r
     where r.project_id = p_project and r.run_id = any (p_run_ids) order by r.run_id
$$;

-- take_callbacks: take up to p_limit due callbacks, longest due first. Each is hidden from other workers for
--   p_hidden_seconds and counts as tried.
--   Returns [{callback_id, url, attempt, run_id, turn_id, agent, call_id, correlation_id, outcome, content, card_id,
--   duration_ms, trace}]. For a turn, content is its deliverable, agent its agent, and call_id the call of its parent,
--   if it has one. correlation_id: of the delegation that this turn carries out. For a run, turn_id is null, and
--   content is its state. trace: what the memory of the run keeps of its caller's trace.
--   raises: see _enter; 22023 for a limit that is not between 1 and 1000, or seconds that are not between 0 and 86400
--   locks:  the callbacks, skipping rows that another transaction has locked
create function heliograph.take_callbacks(
    p_project text, p_limit integer, p_hidden_seconds float8, p_now timestamptz
) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_due text[];
    v_taken jsonb;
begin
    if not coalesce(p_limit between 1 and 1000, false) then
        raise exception using errcode = '22023', message = format('limit must be between 1 and 1000, not %s', p_limit);
    elsif not coalesce(p_hidden_seconds between 0 and 86400, false) then
        raise exception using errcode = '22023', message = format('hidden_seconds must be between 0 and 86400, not %s',
                                                                  p_hidden_seconds);
    end if;
    v_due := heliograph._lock_due_callbacks(p_project, p_limit, p_now);
    with taken as (
        update heliograph.callbacks c
           set attempts = c.attempts + 1, due_at = p_now + make_interval(secs => p_hidden_seconds)
         where c.project_id = p_project and c.callback_id = any (v_due)
        returning c.callback_id, c.url, c.attempts, c.run_id, c.turn_id, c.created_at
    )
    select jsonb_agg(jsonb_build_object(
               'callback_id', k.callback_id, 'url', k.url, 'attempt', k.attempts, 'run_id', k.run_id,
               'turn_id', k.turn_id, 'agent', split_part(t.agent_id, '/', 2), 'call_id', t.parent_call_id,
               'outcome', coalesce(t.outcome, r.outcome),
               'card_id', d.card_id, 'correlation_id', coalesce(
                   t.parent_turn_id || ':' || t.parent_call_id, s.signal #>> '{payload,correlation_id}'),
               'content', case when k.turn_id is null then r.state else heliograph._content(p_project, d.content) end,
               'duration_ms', greatest(0, floor(extract(epoch from k.created_at - coalesce(t.created_at,
                       r.created_at)) * 1000))::bigint,
               'trace', jsonb_strip_nulls(jsonb_build_object('traceparent', r.memory -> 'traceparent',
                                                             'trace_id', r.memory -> 'trace_id')))
               order by array_position(v_due, k.callback_id))
      into v_taken
      from taken k
      left join lateral (
           select x.agent_id, x.parent_turn_id, x.parent_call_id, x.cause_seq, x.outcome, x.created_at
             from heliograph.agent_turns x
            where x.project_id = p_project and x.agent_turn_id = k.turn_id offset 0) t on true
      left join lateral heliograph._signal_at(
                p_project, heliograph._owner_at(p_project, k.run_id, t.cause_seq), t.cause_seq) s
             on t.parent_call_id is null
      left join lateral (
           select x.outcome, x.state, x.created_at, x.memory from heliograph.runs x
            where x.project_id = p_project and x.run_id = k.run_id offset 0) r on true
      left join lateral (
           select x.card_id, x.content from heliograph.cards x
            where x.project_id = p_project and x.card_id = heliograph._deliverable_id(k.turn_id) offset 0) d on true;
    return coalesce(v_taken, '[]');
end $$;

-- record_callbacks: record the results of attempts to deliver callbacks.
--   p_items: [{callback_id, attempt, state, error, again_seconds}]. state: 'delivered', or 'failed'. A failed callback
--   is sent again after again_seconds; if that is null, it is dead until redeliver_callbacks revives it.
--   Returns [{callback_id, outcome}] in the order of p_items. 'ok'. 'stale': a later attempt has begun.
--   raises: see _enter; 22023 for another state, or seconds that are not between 0 and 366 days
--   locks:  the callbacks, ascending
create function heliograph.record_callbacks(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_answers jsonb;
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, '{callback_id,attempt,state,error,again_seconds}');
    perform heliograph._check_type('p_items[]', p_items, 'error', 'string');
    if exists (select from jsonb_array_elements(p_items) i
                where not coalesce(i ->> 'state' in ('delivered', 'failed'), false)
                   or not coalesce((i ->> 'again_seconds')::float8 between 0 and 31622400, true)) then
        raise exception using errcode = '22023',
        message = 'state must be delivered, or failed with again_seconds null or from 0 to 366 days';
    end if;
    perform heliograph._lock_callbacks(p_project, array(select i ->> 'callback_id'
                                                        from jsonb_array_elements(p_items) i));
    with item as materialized (
        select i.*, row_number() over (partition by i.callback_id order by i.n) = 1 as is_first
          from rows from (jsonb_to_recordset(p_items) as
               (callback_id text, attempt integer, state text, error text, again_seconds float8)) with ordinality
               i (callback_id, attempt, state, error, again_seconds, n)
    ), written as (
        update heliograph.callbacks c
           set state = case when i.state = 'delivered' then 'delivered' when i.again_seconds is null then 'dead'
               else 'due' end,
               due_at = case when i.state = 'failed' and i.again_seconds is not null
                             then p_now + make_interval(secs => i.again_seconds) end,
               last_error = case when i.state = 'failed' then left(i.error, 500) end,
               finished_at = case when i.state = 'delivered' or i.again_seconds is null then p_now end
          from item i
         where c.project_id = p_project and c.callback_id = i.callback_id and c.state = 'due' and c.attempts = i.attempt
           and i.is_first
        returning c.callback_id
    )
    select jsonb_agg(jsonb_build_object('callback_id', i.callback_id, 'outcome',
               case when i.is_first and i.callback_id = any (array(select w.callback_id from written w)) then 'ok'
                   else 'stale' end) order by i.n)
      into v_answers from item i;
    return coalesce(v_answers, '[]');
end $$;

-- sweep_callbacks: mark callbacks as dead that have been due for p_older_seconds without an attempt, longest due
--   first, and keep their last error. They happen in projects where no worker can sign, and would keep their turns
--   from being pruned. No callback is abandoned while a worker delivers any callback of the project.
--   p_limit: the maximum number of callbacks; null for all.
--   Returns {abandoned: [callback_id]}.
--   raises: see _enter; 22023 for a negative limit, or seconds that are not between 0 and 366 days
--   locks:  the callbacks, skipping rows that another transaction has locked
create function heliograph.sweep_callbacks(
    p_project text, p_limit integer, p_older_seconds float8, p_now timestamptz
) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_late text[];
begin
    perform heliograph._check_sweep(p_limit);
    if not coalesce(p_older_seconds between 0 and 31622400, false) then
        raise exception using errcode = '22023',
        message = format('older_seconds must be between 0 and 31622400, not %s', p_older_seconds);
    end if;
    if exists (select from heliograph.callbacks c where c.project_id = p_project and c.state = 'due'
               and c.due_at > p_now) then
        return '{"abandoned": []}';
    end if;
    v_late := heliograph._lock_due_callbacks(p_project, p_limit, p_now - make_interval(secs => p_older_seconds));
    update heliograph.callbacks c
       set state = 'dead', due_at = null, finished_at = p_now, last_error = coalesce(c.last_error || '; ', '') || case
           when c.attempts > 0 then
               'not tried again in time: no worker had HELIOGRAPH_WEBHOOK_SECRETS' else
               'not tried in time: no worker had HELIOGRAPH_WEBHOOK_SECRETS' end
     where c.project_id = p_project and c.callback_id = any (v_late);
    return jsonb_build_object('abandoned', to_jsonb(v_late));
end $$;

-- redeliver_callbacks: send callbacks again, delivered or dead, starting with a first attempt.
--   p_keys: [callback_id].
--   Returns [{callback_id, outcome}] in the order of p_keys: 'due' or 'unknown_callback'.
--   raises: see _enter
--   locks:  the callbacks, ascending
create function heliograph.redeliver_callbacks(p_project text, p_keys jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_keys text[] := array(select jsonb_array_elements_text(p_keys));
    v_found constant text[] := heliograph._lock_callbacks(p_project, v_keys);
begin
    perform heliograph._check_json(p_keys);
    perform heliograph._check_strings('p_keys[]', p_keys);
    update heliograph.callbacks c set state = 'due', attempts = 0, due_at = p_now, last_error = null, finished_at = null
     where c.project_id = p_project and c.callback_id = any (v_found);
    return coalesce((
        select jsonb_agg(jsonb_build_object('callback_id', k.key, 'outcome',
                   case when k.key = any (v_found) then 'due' else 'unknown_callback' end) order by k.n)
          from unnest(v_keys) with ordinality k (key, n)), '[]');
end $$;

-- _lock_due_callbacks: the callbacks that were due at a time, the longest first; null: all of them.
--   locks:  the callbacks, skipping rows that another transaction has locked
create function heliograph._lock_due_callbacks(p_project text, p_limit integer, p_at timestamptz) returns text[]
    language plpgsql as $$
begin
    return array(
        select c.callback_id from heliograph.callbacks c
         where c.project_id = p_project and c.state = 'due' and c.due_at <= p_at
         order by c.due_at, c.callback_id limit p_limit for update skip locked);
end $$;

-- _lock_callbacks: the ids of these callbacks that exist.
--   locks:  the callbacks, ascending
create function heliograph._lock_callbacks(p_project text, p_ids text[]) returns text[]
    language plpgsql as $$
begin
    return array(
        select c.callback_id from heliograph.callbacks c
         where c.project_id = p_project and c.callback_id = any (p_ids) order by c.callback_id for update);
end $$;

-- callback_overview: callbacks, their receivers and their attempts
create view heliograph.callback_overview as
select c.project_id, c.callback_id, c.run_id, c.turn_id, c.url, c.state, c.attempts, c.due_at, c.last_error,
       c.created_at, c.finished_at
  from heliograph.callbacks c;
