-- The floor: the least that any durable queue in PostgreSQL does. Three functions, one table, one partial index: no
-- leases that run out, no fencing, no log, no idempotency. Heliograph is measured beside it, on the same server.

create table job (
    id          bigint generated always as identity primary key,
    state       smallint not null default 0,  -- 0 ready, 1 claimed, 2 done
    payload     jsonb not null,
    result      jsonb,
    claimed_by  integer,
    lease_until timestamptz
);
create index job_ready on job (id) where state = 0;

create function job_put(p_payload jsonb) returns bigint language sql as $$
    insert into job (payload) values (p_payload) returning id
$$;

create function job_claim(p_worker integer) returns bigint language plpgsql as $$
declare
    v_id bigint;
begin
    with next as (select id from job where state = 0 order by id for update skip locked limit 1)
    update job set state = 1, claimed_by = p_worker, lease_until = now() + interval '60 s'
      from next where job.id = next.id
    returning job.id into v_id;
    return v_id;
end $$;

create function job_done(p_id bigint, p_worker integer, p_result jsonb) returns boolean language plpgsql as $$
begin
    update job set state = 2, result = p_result where id = p_id and state = 1 and claimed_by = p_worker;
    return found;
end $$;
