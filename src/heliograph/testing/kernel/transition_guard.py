"""A guard over the state machine: the database rejects every transition that is not in `head_transitions`.

Test databases, the simulator's PostgreSQL and chaos runs have this trigger.
Production has none, to keep the hot path short; there, `head_transitions`
documents the transitions that the kernel's functions make.
"""

from __future__ import annotations

from typing import Any

# In its own schema, so it survives another installation of the kernel, and tests of the kernel's schema do not see it.
GUARD = """
create schema if not exists heliograph_testing;
create or replace function heliograph_testing.guard_head() returns trigger language plpgsql as $$
declare
    v_status text := case tg_op when 'INSERT' then 'idle' else old.status end;  -- a head without a row is idle
    v_epoch bigint := case tg_op when 'INSERT' then 0 else old.turn_epoch end;
    v_turn_id text := case tg_op when 'INSERT' then null else old.active_agent_turn_id end;
begin
    if tg_op = 'DELETE' then
        if old.status <> 'idle' then
            raise exception using errcode = '23514', message = format('agent %s is deleted while %s', old.agent_id, old.status);
        end if;
        return old;
    elsif (new.status, new.turn_epoch) = (v_status, v_epoch) then
        if new.active_agent_turn_id is distinct from v_turn_id then
            raise exception using errcode = '23514', message = format('agent %s got another turn without a move', new.agent_id);
        end if;
    elsif not exists (select from heliograph.head_transitions
                       where from_status = v_status and to_status = new.status and epoch_step = new.turn_epoch - v_epoch) then
        raise exception using errcode = '23514', message = format('there is no move of agent %s from %s at epoch %s to %s at epoch %s',
                              new.agent_id, v_status, v_epoch, new.status, new.turn_epoch);
    elsif v_status <> 'idle' and new.status <> 'idle' and new.active_agent_turn_id is distinct from v_turn_id then
        raise exception using errcode = '23514', message = format('agent %s went on with another turn', new.agent_id);
    end if;
    return new;
end $$;
create or replace trigger guard_head before insert or delete or update of status, turn_epoch, active_agent_turn_id
    on heliograph.agent_state_head for each row execute function heliograph_testing.guard_head();
"""


async def guard_transitions(connection: Any) -> None:
    """Install the guard in the database of an asyncpg connection; a second call changes nothing."""
    await connection.execute(GUARD)
