-- Upon floor.sql and floor_turn.sql: calls that take many items at once. See bench/prototype.py.

create index inbox_all on inbox (id) where state = 0;

create function put_jobs(p_payloads jsonb[]) returns bigint[] language plpgsql as $$
declare
    v_ids bigint[];
begin
    with new as (insert into job (payload) select unnest(p_payloads) returning id)
    select array_agg(id order by id) into v_ids from new;
    perform pg_notify('work', '');
    return v_ids;
end $$;

-- finish the jobs of the last call, and claim the next, in one commit
create function cycle_jobs(p_worker integer, p_ended bigint[], p_limit integer) returns setof bigint language plpgsql as $$
begin
    update job set state = 2, result = '{"ok": true}' from unnest(p_ended) ended (id)
     where job.id = ended.id and state = 1 and claimed_by = p_worker;
    return query
        with next as (select id from job where state = 0 order by id for update skip locked limit p_limit)
        update job set state = 1, claimed_by = p_worker, lease_until = now() + interval '60 s'
          from next where job.id = next.id
        returning job.id;
end $$;

create function put_messages(p_agents integer[], p_kind smallint, p_payload jsonb) returns bigint[] language plpgsql as $$
declare
    v_ids bigint[];
begin
    with new as (insert into inbox (agent_id, kind, correlation, payload)
                 select agent, p_kind, nullif(p_kind, 0), p_payload from unnest(p_agents) agent returning id)
    select array_agg(id order by id) into v_ids from new;
    perform pg_notify('work', '');
    return v_ids;
end $$;

-- one message of each agent that can take it: a request opens a turn, a result resumes one; both have a new epoch
create function claim_turns(p_limit integer) returns table (kind smallint, agent_id integer, turn_id bigint, turn_epoch bigint)
    language plpgsql as $$
begin
    return query
        with next as (select i.id, i.agent_id, i.kind from inbox i where i.state = 0 order by i.id for update skip locked limit p_limit),
        moved as (update agent a set epoch = a.epoch + 1, active_turn = coalesce(a.active_turn, nextval('turn_id_seq'))
                    from next n where a.id = n.agent_id and (n.kind = 0) = (a.active_turn is null)
                  returning a.id, a.epoch, a.active_turn, n.id as message, n.kind),
        consumed as (update inbox i set state = 1 from moved m where i.id = m.message returning 1),
        opened as (insert into turn (id, agent_id, epoch, state)
                   select m.active_turn, m.id, m.epoch, 1 from moved m where m.kind = 0 returning 1),
        resumed as (update turn t set state = 1, epoch = m.epoch from moved m
                     where m.kind = 1 and t.id = m.active_turn and t.state = 2 returning 1)
        select m.kind, m.id, m.active_turn, m.epoch from moved m;
end $$;

-- suspend (2) or finish (3), each under its epoch
create function end_steps(p_agents integer[], p_turns bigint[], p_epochs bigint[], p_states smallint[]) returns void
    language plpgsql as $$
begin
    with step as (select * from unnest(p_agents, p_turns, p_epochs, p_states) s (agent, turn, epoch, state)),
    held as (update agent a set active_turn = case when s.state = 2 then a.active_turn end from step s
              where a.id = s.agent and a.epoch = s.epoch and a.active_turn = s.turn returning s.turn, s.state)
    update turn t set state = h.state, waits_for = case when h.state = 2 then 1 end,
                      deliverable = case when h.state = 3 then '{"done": true}'::jsonb end
      from held h where t.id = h.turn and t.state = 1;
end $$;
