-- Workers: which processes are ready to run turns, and whether they are healthy. Operators read this. A lease alone
-- decides which worker owns a turn, and no function decides anything by a heartbeat (decision 0042).

-- beat: record the heartbeats of workers. The first one registers a worker: it is ready.
--   p_items: [{worker, projects, label, version, capabilities, pools, metadata, slots, slots_used,
--   interval_seconds, missed_threshold, phase, status, metrics, warnings}]. worker: the owner in its leases. projects:
--   further projects that it serves; the same heartbeat is recorded in each. capabilities: names of its applications
--   and agents. pools: the pools that it serves (default). interval_seconds null: it sends no further heartbeats.
--   missed_threshold: after so many missed ones it is unhealthy (3). phase: idle (default), or the phase of its turns.
--   status: healthy (default), degraded or unhealthy. warnings may also be a key of metrics.
--   Returns [{worker, outcome}] in the order of p_items: 'ready' for a new worker of p_project, 'ok' for a known one.
--   Deletes workers whose last heartbeat is long past. The commit does not wait for the disk: a server that crashes may
--   forget the heartbeats of its last second.
--   raises: see _enter, also for the further projects; 22023 for an invalid item
--   locks:  the rows of the workers; of the deleted ones only those that nobody has locked
create function heliograph.beat(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_each record;
    v_is_new boolean;
    v_new bigint[] := '{}';
begin
    perform heliograph._begin_beats(p_items,
        '{worker,projects,label,version,capabilities,pools,metadata,slots,slots_used,interval_seconds,missed_threshold,'
        'phase,status,metrics,warnings}');
    for v_each in
        select p.name, i.item, i.n
          from jsonb_array_elements(p_items) with ordinality i (item, n)
         cross join lateral (select p_project as name union
                             select * from jsonb_array_elements_text(nullif(i.item -> 'projects', 'null'))) p
         order by p.name collate "C", i.item ->> 'worker' collate "C", i.n
    loop
        perform heliograph._enter_at(v_each.name, p_now);
        v_is_new := heliograph._beat(v_each.name, v_each.item, p_now);
        if v_is_new and v_each.name = p_project then
            v_new := v_new || v_each.n;
        end if;
    end loop;
    return (select coalesce(jsonb_agg(jsonb_build_object('worker', i.item -> 'worker',
                       'outcome', case when i.n = any (v_new) then 'ready' else 'ok' end) order by i.n), '[]')
              from jsonb_array_elements(p_items) with ordinality i (item, n));
end $$;

-- _beat: record one heartbeat in the entered project, and delete dead workers of it. Returns whether the worker is new.
--   locks:  the row of the worker; of dead ones only those that nobody has locked
create function heliograph._beat(p_project text, p_item jsonb, p_now timestamptz) returns boolean
    language plpgsql as $$
declare
    v_metrics constant jsonb := coalesce(nullif(p_item -> 'metrics', 'null'), '{}');
    v_started_at timestamptz;
    v_is_new boolean;
begin
    select w.started_at into v_started_at from heliograph.workers w
     where w.project_id = p_project and w.worker = p_item ->> 'worker';
    v_is_new := not found;
    insert into heliograph.workers (project_id, worker, label, version, capabilities, pools, metadata, slots,
        slots_used, interval_seconds, missed_threshold, phase, status, metrics, warnings, started_at, beat_at)
    values (p_project, p_item ->> 'worker', coalesce(p_item ->> 'label', p_item ->> 'worker'),
        coalesce(p_item ->> 'version', ''), coalesce(nullif(p_item -> 'capabilities', 'null'), '[]'),
        coalesce(nullif(p_item -> 'pools', 'null'), '["default"]'),
        coalesce(nullif(p_item -> 'metadata', 'null'), '{}'), coalesce((p_item ->> 'slots')::integer, 0),
        coalesce((p_item ->> 'slots_used')::integer, 0), (p_item ->> 'interval_seconds')::numeric,
        coalesce((p_item ->> 'missed_threshold')::integer, 3), coalesce(p_item ->> 'phase', 'idle'),
        coalesce(p_item ->> 'status', 'healthy'), v_metrics - 'warnings',
        coalesce(nullif(p_item -> 'warnings', 'null'), nullif(v_metrics -> 'warnings', 'null'), '[]'),
        p_now, p_now)
    on conflict (project_id, worker) do update
       set label = excluded.label, version = excluded.version, capabilities = excluded.capabilities,
           pools = excluded.pools, metadata = excluded.metadata, slots = excluded.slots,
           slots_used = excluded.slots_used,
           interval_seconds = excluded.interval_seconds, missed_threshold = excluded.missed_threshold,
           phase = excluded.phase, status = excluded.status, metrics = excluded.metrics, warnings = excluded.warnings,
           beat_at = greatest(excluded.beat_at, workers.beat_at);
    -- an hour and ten times what makes a worker unhealthy, so that operators can see the worker; without heartbeats
    -- the database has no sign of whether it is alive
    delete from heliograph.workers w
     using (select x.worker from heliograph.workers x
             where x.project_id = p_project
               and x.beat_at + case when x.interval_seconds is null then interval '1 day'
                                    else greatest(interval '1 hour', make_interval(
                                        secs => (10 * x.missed_threshold * x.interval_seconds)::float8)) end < p_now
             order by x.worker for update skip locked) dead
     where w.project_id = p_project and w.worker = dead.worker;
    return v_is_new;
end $$;

-- _begin_beats: reject invalid items of beat or deregister. The commit of this transaction does not wait for the disk.
--   raises: 22023 naming the field
create function heliograph._begin_beats(p_items jsonb, p_keys text[]) returns void
    language plpgsql as $$
declare
    v_wrong text;
begin
    perform heliograph._check_json(p_items);
    perform heliograph._check_keys('p_items[]', p_items, p_keys);
    v_wrong := (select min(heliograph._wrong_beat(i)) from jsonb_array_elements(p_items) i);
    if v_wrong is not null then
        raise exception using errcode = '22023', message = v_wrong;
    end if;
    perform set_config('synchronous_commit', 'off', true);
end $$;

-- _wrong_beat: null, or the problem of an item of beat.
create function heliograph._wrong_beat(p_item jsonb) returns text
    language sql immutable as $$
    select coalesce(
        case when not coalesce(octet_length(p_item ->> 'worker') between 1 and 200, false)
             then 'the name of a worker must have 1 to 200 bytes'
             when octet_length(p_item::text) > 262144 then 'a heartbeat must have at most 262144 bytes' end,
        heliograph._wrong_type('p_items[]', p_item, 'worker', 'string'),
        heliograph._wrong_type('p_items[]', p_item, 'projects', 'array'),
        heliograph._wrong_type('p_items[]', p_item, 'label', 'string'),
        heliograph._wrong_type('p_items[]', p_item, 'version', 'string'),
        heliograph._wrong_type('p_items[]', p_item, 'capabilities', 'array'),
        heliograph._wrong_type('p_items[]', p_item, 'pools', 'array'),
        heliograph._wrong_type('p_items[]', p_item, 'metadata', 'object'),
        heliograph._wrong_type('p_items[]', p_item, 'interval_seconds', 'number'),
        heliograph._wrong_type('p_items[]', p_item, 'metrics', 'object'),
        heliograph._wrong_type('p_items[]', p_item, 'warnings', 'array'),
        heliograph._wrong_type('p_items[].metrics', p_item -> 'metrics', 'warnings', 'array'),
        case when not coalesce(p_item ->> 'slots' ~ '^[0-9]{1,6}$', true)
               or not coalesce(p_item ->> 'slots_used' ~ '^[0-9]{1,6}$', true)
             then 'slots and slots_used must be whole numbers from 0 to 999999'
             when not coalesce(p_item ->> 'missed_threshold' ~ '^[1-9][0-9]{0,2}$', true)
             then 'missed_threshold must be a whole number from 1 to 999'
             when not coalesce(p_item ->> 'phase' in ('idle', 'init', 'plan', 'act', 'reflect', 'terminate'), true)
             then 'phase must be idle, init, plan, act, reflect or terminate'
             when not coalesce(p_item ->> 'status' in ('healthy', 'degraded', 'unhealthy'), true)
             then 'status must be healthy, degraded or unhealthy' end,
        -- the last one: the types of both are known
        case when not coalesce((p_item ->> 'interval_seconds')::numeric between 0.01 and 86400, true)
             then 'interval_seconds must be between 0.01 and 86400, or null'
             when jsonb_path_exists(p_item, '$.keyvalue() ? (@.key == "projects" || @.key == "capabilities" '
                                            '|| @.key == "pools" || @.key == "warnings").value[*] '
                                            '? (@.type() != "string")')
               or jsonb_path_exists(p_item, '$.metrics.warnings[*] ? (@.type() != "string")')
             then 'projects, capabilities, pools and warnings must be lists of strings' end)
$$;

-- deregister: remove workers that have ended by themselves.
--   p_items: [{worker, projects}], as in beat.
--   Returns [{worker, outcome}] in the order of p_items: 'deregistered', or 'unknown' where p_project has no
--   such worker.
--   raises: see _enter, also for the further projects; 22023 for projects that are no list of names
--   locks:  the rows of the workers
create function heliograph.deregister(p_project text, p_items jsonb, p_now timestamptz) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
    v_each record;
    v_gone bigint[] := '{}';
begin
    perform heliograph._begin_beats(p_items, '{worker,projects}');
    for v_each in
        select p.name, i.item ->> 'worker' as worker, i.n
          from jsonb_array_elements(p_items) with ordinality i (item, n)
         cross join lateral (select p_project as name union
                             select * from jsonb_array_elements_text(nullif(i.item -> 'projects', 'null'))) p
         order by p.name collate "C", i.item ->> 'worker' collate "C", i.n
    loop
        perform heliograph._enter_at(v_each.name, p_now);
        delete from heliograph.workers where project_id = v_each.name and worker = v_each.worker;
        if found and v_each.name = p_project then
            v_gone := v_gone || v_each.n;
        end if;
    end loop;
    return (select coalesce(jsonb_agg(jsonb_build_object('worker', i.item -> 'worker',
                       'outcome', case when i.n = any (v_gone) then 'deregistered' else 'unknown' end)
                                     order by i.n), '[]')
              from jsonb_array_elements(p_items) with ordinality i (item, n));
end $$;

-- list_workers: list the workers of a project with their health at p_now, ordered by label, start and name.
--   health: unhealthy once missed_threshold heartbeats are missing, otherwise the status of the last one; unknown for a
--   worker that sends none. missed: how many are missing since the last one. age_seconds: the time since that.
--   Returns [{worker, label, version, health, status, phase, slots, slots_used, capabilities, pools, metadata,
--   metrics, warnings, interval_seconds, missed_threshold, missed, age_seconds, started_at, beat_at}].
--   raises: see _enter
create function heliograph.list_workers(p_project text, p_now timestamptz) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object(
                   'worker', w.worker, 'label', w.label, 'version', w.version,
                   'health', case when w.interval_seconds is null then 'unknown'
                                  when a.missed >= w.missed_threshold then 'unhealthy' else w.status end,
                   'status', w.status, 'phase', w.phase, 'slots', w.slots, 'slots_used', w.slots_used,
                   'capabilities', w.capabilities, 'pools', w.pools, 'metadata', w.metadata, 'metrics', w.metrics,
                   'warnings', w.warnings, 'interval_seconds', w.interval_seconds,
                   'missed_threshold', w.missed_threshold, 'missed', a.missed, 'age_seconds', a.seconds,
                   'started_at', w.started_at, 'beat_at', w.beat_at) order by w.label, w.started_at, w.worker), '[]')
          from heliograph.workers w
         cross join lateral (select greatest(0, extract(epoch from p_now - w.beat_at)) as seconds) t
         cross join lateral (select t.seconds, floor(t.seconds / w.interval_seconds)::bigint as missed) a
         where w.project_id = p_project);
end $$;
