-- Measurements of a project for the metrics of its workers. Cheap enough for every few seconds: each part reads a
-- bounded number of rows by an index, and finished work costs nothing.

-- measure: count the work that waits, the leases and the messages of a project, its circuit breakers and the budgets of
--   its open turns.
--   Returns {queues: [{application, pool, state, count, seconds}], leases: [{application, state, count}],
--   outbox: [{kind, count, seconds}], breakers: [{type, state, count}], budgets: [{kind, maximum, used, reserved}]}.
--   state of queues: ready, deferred, or queued behind another turn of the same agent instance; seconds: how long the
--   oldest one of these could have been claimed. state of leases: valid or expired. A count of 10000 means at least so
--   many. breakers: of the hundred that changed last. budgets: of a thousand open turns, the first to expire.
--   raises: see _enter
create function heliograph.measure(p_project text, p_now timestamptz) returns jsonb
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_project constant text := heliograph._enter_at(p_project, p_now);
begin
    return jsonb_build_object(
        'queues', (
            select coalesce(jsonb_agg(jsonb_build_object('application', g.target, 'pool', g.pool, 'state', g.state,
                       'count', g.count, 'seconds', g.seconds) order by g.target, g.pool, g.state), '[]')
              from (select q.target, q.pool, q.state, count(*) as count,
                           greatest(0, extract(epoch from p_now - min(q.since))) as seconds
                      from ((select h.target, h.pool, 'ready' as state, h.moved_at as since
                               from heliograph.agent_state_head h
                              where h.project_id = p_project and h.status = 'dispatched' and h.due_at is null
                              order by h.target, h.pool, h.priority desc, h.ready_at, h.agent_id limit 10000)
                            union all
                            (select h.target, h.pool, 'deferred', h.due_at
                               from heliograph.agent_state_head h
                              where h.project_id = p_project and h.due_at is not null
                              order by h.due_at, h.agent_id limit 10000)
                            union all
                            (select h.target, t.pool, 'queued', t.created_at
                               from (select x.agent_id, x.pool, x.created_at
                                       from heliograph.agent_turns x
                                      where x.project_id = p_project and x.state = 'queued'
                                      order by x.agent_id, x.queue_seq limit 10000) t
                               join heliograph.agent_state_head h
                                 on h.project_id = p_project and h.agent_id = t.agent_id)) q
                     group by q.target, q.pool, q.state) g),
        'leases', (
            select coalesce(jsonb_agg(jsonb_build_object('application', g.target, 'state', g.state, 'count', g.count)
                                      order by g.target, g.state), '[]')
              from (select l.target, l.state, count(*) as count
                      from (select h.target, case when h.lease_until < p_now then 'expired' else 'valid' end as state
                              from heliograph.agent_state_head h
                             where h.project_id = p_project and h.lease_until is not null
                             order by h.lease_until, h.agent_id limit 10000) l
                     group by l.target, l.state) g),
        'outbox', (
            select coalesce(jsonb_agg(jsonb_build_object('kind', g.kind, 'count', g.count, 'seconds', g.seconds)
                                      order by g.kind), '[]')
              from (select k.kind, count(*) as count,
                           greatest(0, extract(epoch from p_now - min(m.due_at))) as seconds
                      from unnest('{task_event,cmd,report,stop,halt}'::text[]) k (kind)
                     cross join lateral (
                           select o.due_at from heliograph.outbox o
                            where o.project_id = p_project and o.kind = k.kind and o.published_at is null
                            order by o.due_at, o.outbox_id limit 10000) m
                     group by k.kind) g),
        'breakers', (
            select coalesce(jsonb_agg(jsonb_build_object('type', g.type, 'state', g.state, 'count', g.count)
                                      order by g.type, g.state), '[]')
              from (select b.type, b.state, count(*) as count
                      from (select x.type, x.state from heliograph.circuit_breakers x
                             where x.project_id = p_project
                             order by x.changed_at desc, x.type desc, x.target desc limit 100) b
                     group by b.type, b.state) g),
        'budgets', (
            select coalesce(jsonb_agg(jsonb_build_object('kind', g.kind, 'maximum', g.maximum, 'used', g.used,
                                                         'reserved', g.reserved) order by g.kind), '[]')
              from (select b.kind, sum(b.amount_max) as maximum, sum(b.used + b.overspent) as used,
                           sum(b.reserved) as reserved
                      from (select x.agent_turn_id from heliograph.agent_turns x
                             where x.project_id = p_project and x.state <> 'done' and x.human_wait_since is null
                             order by x.expires_at, x.agent_turn_id limit 1000) t
                      join heliograph.budgets b on b.project_id = p_project and b.turn_id = t.agent_turn_id
                     group by b.kind) g));
end $$;
