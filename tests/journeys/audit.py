"""Triggers with which a test counts every token, admission and trial that the kernel grants, also those of killed workers.

A row of the kernel has only the last value: a call that begins again replaces its earlier start and its earlier mark.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

_TABLES = """
create schema audit;
create table audit.starts (n bigserial, call text, epoch bigint, starts_at_us bigint);
create table audit.buckets (n bigserial, before_ns bigint, after_ns bigint, start_ns bigint);
create table audit.admissions (n bigserial, call text, generation bigint, is_trial boolean);
create table audit.trials (n bigserial, generation bigint);
create table audit.states (n bigserial, generation bigint, state text);

create function audit.start() returns trigger language plpgsql security definer as $$ begin
    -- the mark of a call that waits for its start is removed without another token; the call itself gets the owner's
    -- epoch after its token
    if new.rate ->> 'starts_at' is distinct from old.rate ->> 'starts_at' and new.rate is not null then
        insert into audit.starts (call, epoch, starts_at_us)
        values (new.agent_turn_id || '/' || new.tool_call_id,
                (select h.turn_epoch from heliograph.agent_turns t join heliograph.agent_state_head h using (project_id, agent_id)
                  where t.project_id = new.project_id and t.agent_turn_id = new.agent_turn_id),
                (extract(epoch from (new.rate ->> 'starts_at')::timestamptz) * 1000000)::bigint);
    end if;
    return null;
end $$;
create trigger audit_start after update of rate on heliograph.turn_waiting_tools
    for each row execute function audit.start();

create function audit.bucket() returns trigger language plpgsql security definer as $$ begin
    insert into audit.buckets (before_ns, after_ns, start_ns) values (old.full_at, new.full_at, new.last_start);
    return null;
end $$;
create trigger audit_bucket after update on heliograph.rate_buckets for each row execute function audit.bucket();

create function audit.admission() returns trigger language plpgsql security definer as $$ begin
    if new.circuit is not null then
        insert into audit.admissions (call, generation, is_trial)
        values (new.agent_turn_id || '/' || new.tool_call_id, (new.circuit ->> 'generation')::bigint,
                (new.circuit -> 'is_trial')::boolean);
    end if;
    return null;
end $$;
create trigger audit_admission after update of circuit on heliograph.turn_waiting_tools
    for each row execute function audit.admission();

create function audit.trial() returns trigger language plpgsql security definer as $$ begin
    insert into audit.trials (generation) values (new.generation);
    return null;
end $$;
create trigger audit_trial after insert on heliograph.circuit_calls
    for each row when (new.status = 'trial') execute function audit.trial();

create function audit.state() returns trigger language plpgsql security definer as $$ begin
    insert into audit.states (generation, state) values (new.generation, new.state);
    return null;
end $$;
create trigger audit_state after insert or update on heliograph.circuit_breakers
    for each row execute function audit.state();
"""


@asynccontextmanager
async def audited(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Install the triggers, and yield a connection that reads what they wrote."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(_TABLES)
        yield connection
    finally:
        await connection.close()


async def rows(connection: asyncpg.Connection, table: str) -> list[Any]:
    """The rows of one table, in the order in which they were written."""
    return list(await connection.fetch(f"select * from audit.{table} order by n"))
