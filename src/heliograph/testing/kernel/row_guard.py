"""A guard over the rows of the tables that each turn writes to: the database rejects rows that no kernel function writes.

PostgreSQL parses the constraints of a table in each statement that writes to it (decision 0104). So production
has only those that reject what callers may send, and the doctor finds rows that break the others.
Test databases, the simulator's PostgreSQL and chaos runs have all of them.
"""

from __future__ import annotations

from typing import Any

# table -> its constraints
ROWS = {
    "agent_state_head": {
        "agent_state_head_check": "(status = 'idle') = (active_agent_turn_id is null)",
        "agent_state_head_check1": "(status = 'running') = (lease_until is not null)",
        "agent_state_head_check2": "(status = 'running') = (owner is not null)",
        "agent_state_head_check3": "(status = 'suspended') = (waiting_tool_count > 0)",
        "agent_state_head_check4": "(status = 'suspended') = (resumes_on is not null)",
        "agent_state_head_check5": "due_at is null or status = 'dispatched'",
        "agent_state_head_check6": "(stop_requested_at is null) = (force_at is null)",
        "agent_state_head_stop": "stop_requested_at is null or status = 'running' or (status = 'dispatched' and terminates)",
    },
    "agent_turns": {
        "agent_turns_check": "(state = 'done') = (outcome is not null)",
        "agent_turns_check2": "(state = 'done') = (finished_at is not null)",
        "agent_turns_check3": "(parent_turn_id is null) = (parent_call_id is null)",
    },
    "agent_inbox": {"agent_inbox_check": "message_type in ('turn', 'ui_action') or correlation_id is not null"},
    "runs": {
        "runs_check": "(status = 'ended') = (outcome is not null)",
        "runs_check1": "(status = 'ended') = (ended_at is not null)",
        "runs_forked_check": "(forked_from is null) = (forked_seq is null) and forked_seq > 0",
    },
    "turn_waiting_tools": {
        "turn_waiting_tools_check": "(state = 'resolved') = (status is not null)",
        "turn_waiting_tools_check1": "(state = 'resolved') = (resolved_position is not null)",
        "turn_waiting_tools_check2": "(state = 'open') = (resolved_at is null)",
        "turn_waiting_tools_check3": "(kind = 'child') = (child_turn_id is not null)",
    },
    "cards": {"cards_check1": "(agent_turn_id is null) = (turn_epoch is null)"},
    "signals": {"signals_check": "jsonb_array_length(entries) = count"},
}


async def guard_rows(connection: Any) -> None:
    """Add the constraints in the database of an asyncpg connection; a second call changes nothing."""
    for table, constraints in ROWS.items():
        parts = [
            f"drop constraint if exists {name}, add constraint {name} check ({holds})"
            for name, holds in constraints.items()
        ]
        await connection.execute(f"alter table heliograph.{table} {', '.join(parts)}")
