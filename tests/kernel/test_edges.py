"""The edges of a turn are read from its message and its calls (decision 0177)."""

from __future__ import annotations

import asyncpg
import pytest

from heliograph.ledger.install import install
from tests.kernel.kit import START, Kernel
from tests.kernel.test_install import install_before
from tests.kernel.waits import begin, edges, record, reported, suspend, tool

EDGES_OF_CALLS = 67
TURN = {
    "project_id": "p", "agent_turn_id": "turn_a", "agent_id": "run_a/writer", "run_id": "run_a", "queue_seq": 41, "state": "active",
    "message_type": "turn", "priority": 2, "attempts": 1, "max_attempts": 3, "defer_count": 2, "card_count": 6, "depth": 1,
    "cause_seq": 1, "activation_seq": 2, "output_box_id": "box_turn_a", "created_at": START.isoformat(), "expires_at": START.isoformat(),
    "human_wait_time": "0", "pool": "default", "lacks_event": False,
}  # fmt: skip
CALL = {
    "project_id": "p", "agent_turn_id": "turn_a", "agent_id": "run_a/writer", "run_id": "run_a", "tool": "search", "kind": "tool", "effect": "once",
    "state": "resolved", "epoch": 5, "after_execution": "suspend", "may_override": False, "status": "success", "duplicates": 0,
    "opened_at": START.isoformat(), "resolved_at": START.isoformat(), "fails_fast": False, "is_trusted": False,
}  # fmt: skip
CALLS = (
    {**CALL, "tool_call_id": "c1", "position": 1, "resolved_position": 2},  # of a version without positions of calls
    {**CALL, "tool_call_id": "c2", "position": 2, "resolved_position": 1, "kind": "child", "child_turn_id": "turn_b", "opened_seq": 3, "resolved_seq": 7},
    {**CALL, "tool_call_id": "c3", "position": 3, "resolved_position": 3, "kind": "inline", "opened_seq": 5, "resolved_seq": 6},
    {**CALL, "tool_call_id": "c4", "position": 4, "state": "open", "status": None, "resolved_at": None, "opened_seq": 8},
)  # fmt: skip


async def test_edges_of_a_turn_stand_in_the_order_of_its_log(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    await record(kernel, claimed, "i1")
    await suspend(kernel, claimed, tool("c1"), tool("c2"))
    await reported(kernel, "turn_a", "c2")
    await reported(kernel, "turn_a", "c1")
    assert await edges(kernel, "turn_a") == [
        ("enqueue", "request", None), ("tool_call", "request", "i1"), ("tool_call", "request", "c1"), ("tool_call", "request", "c2"),
        ("report", "response", "c2"), ("report", "response", "c1"),
    ]  # fmt: skip
    log = {row["id"]: row["name"] for row in await kernel.rows("signal_log", "seq, id, name", "run_id = 'run_a'")}
    causes = [
        log[row["cause_id"]] for row in await kernel.rows("edge_overview", "edge_id, cause_id", "turn_id = 'turn_a'")
    ]
    assert causes[1:] == ["agent:activated"] * 3 + ["tool:result"] * 2


@pytest.mark.more
async def test_calls_of_earlier_versions_have_their_edges(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_before(EDGES_OF_CALLS, connection, monkeypatch)
    insert = "insert into heliograph.{0} overriding system value select * from jsonb_populate_record(null::heliograph.{0}, $1)"
    await connection.execute(insert.format("agent_turns"), TURN)
    for call in CALLS:
        await connection.execute(insert.format("turn_waiting_tools"), call)
    await install(connection)
    rows = await connection.fetch(
        "select edge_id, primitive, edge_phase, call_id, other_turn_id, cause_id from heliograph.edge_overview order by edge_id"
    )
    assert list(map(tuple, rows)) == [
        (1, "tool_call", "request", "c1", None, "sig_run_a_2"), (2, "report", "response", "c1", None, "sig_run_a_2"),
        (3, "join", "request", "c2", "turn_b", "sig_run_a_2"), (4, "tool_call", "request", "c3", None, "sig_run_a_2"),
        (5, "join", "response", "c2", "turn_b", "sig_run_a_7"), (6, "tool_call", "request", "c4", None, "sig_run_a_2"),
    ]  # fmt: skip
    rows = await connection.fetch(
        "select agent_id, run_id, result_card_id from heliograph.wait_overview order by call_id"
    )
    cards = ("card:turn_a:call:c1", "card:turn_a:call:c2", "card:turn_a:call:c3", None)
    assert list(map(tuple, rows)) == [("run_a/writer", "run_a", card) for card in cards]
