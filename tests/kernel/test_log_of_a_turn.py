"""A turn writes little to the log of the server (decision 0178)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from heliograph.ledger.kernel import KERNEL
from heliograph.testing.database import TestServer
from tests.kernel.kit import TARGET, Item, Kernel, connect, draft, encoded, ending, run_item, turn_item
from tests.kernel.waits import result, tool

ITEMS = 31
BYTES_MAX = 5310
MEMORY = {"agents": ["noop"], "started_at": "2026-11-27T20:08:31.238487+00:00"}  # after the start, and after the end


@pytest_asyncio.fixture
async def alone(postgres: TestServer) -> AsyncIterator[Kernel]:
    """The kernel of a project without a wire, in a database of its own.

    In one with many projects, a full page of an index is cleaned at each insertion, which is logged.
    """
    url = await postgres.create()
    kernel = Kernel(await connect(url), "calls")
    yield kernel
    found = await kernel.call("doctor", False)
    await kernel.connection.close()
    await postgres.drop(url)
    assert found == []


async def _log_of(kernel: Kernel, function: str, *args: Any) -> int:
    """Call a function of the kernel; return the bytes that it wrote to the log."""
    definition = KERNEL[function]
    given = definition.values([kernel.project, *args], encoded)
    statement = definition.statement(f"${len(given) + 1}::timestamptz")
    plan = await kernel.connection.fetchval(f"explain (analyze, wal, format json) {statement}", *given, kernel.now)
    written: int = plan[0]["Plan"]["WAL Bytes"]
    return written


@pytest.mark.more
async def test_turn_that_starts_and_ends_writes_little_to_the_log(alone: Kernel) -> None:
    kernel = alone
    kernel.project = "turns".ljust(24, "-")  # each row has the name
    written = []
    for n in range(ITEMS):
        run_id, turn_id = f"run_{n:021}", f"turn_{n:021}"
        item = run_item(run_id, ["noop"], {turn_id: "noop"})
        item["reaction"]["memory"] = MEMORY
        log = await _log_of(kernel, "start_runs", [item])
        log += await _log_of(kernel, "claim", [{"target": TARGET}], "worker-1", 1, 30)
        (head,) = await kernel.rows("agent_state_head", "turn_epoch", "run_id = $2", run_id)
        claimed = {"agent_id": f"{run_id}/noop", "turn_id": turn_id, "epoch": head["turn_epoch"], "agent": "noop",
                   "activation_id": f"sig_{run_id}_2", "run": {"version": 1}}  # fmt: skip
        written.append(log + await _log_of(kernel, "finish", [ending(claimed, ends="success", memory=MEMORY)]))
    await kernel.publish()
    assert await kernel.checks(quiescent=True) == []
    assert min(written) < BYTES_MAX, written  # no full pages, splits of indexes or cleaned pages


CALL_BYTES_MAX = 10140


@pytest.mark.more
async def test_turn_with_a_suspended_call_writes_little_to_the_log(alone: Kernel) -> None:
    """Its command is as a worker sends it. Each row has the project, so the length of its name counts."""
    kernel = alone
    written = []
    for n in range(ITEMS):
        run_id, turn_id = f"run_{n:021}", f"turn_{n:021}"
        started = await _log_of(kernel, "start_runs", [run_item(run_id, ["asker"], {turn_id: "asker"})])
        first, claimed = await _log_of_claim(kernel, run_id, turn_id)
        command = {"subject": "cmd.tool.search", "body": {"arguments": {"question": 1}}}
        content = {"tool_call_id": "c1", "tool_name": "search", "arguments": {"question": 1}}
        card = {"card_id": f"card_{turn_id}_2_c1", "kind": "tool.call", "content": content}
        asked = draft("tool:call", "2", agent="asker", payload={"id": "c1", "name": "search", "input": {"question": 1}})
        call = tool("c1", step_id="s1", command=command)
        suspended = await _log_of(kernel, "suspend", [turn_item(claimed, asked, calls=[call], cards=[card])])
        reported = await _log_of(kernel, "report", [result(turn_id, "c1")])
        second, claimed = await _log_of_claim(kernel, run_id, turn_id)
        ended = await _log_of(kernel, "finish", [ending(claimed, ends="success")])
        written.append((started, first, suspended, reported, second, ended))
    await kernel.publish()
    assert await kernel.checks(quiescent=True) == []
    least = [min(each) for each in zip(*written, strict=True)]
    assert sum(least) < CALL_BYTES_MAX, least


async def _log_of_claim(kernel: Kernel, run_id: str, turn_id: str) -> tuple[int, Item]:
    log = await _log_of(kernel, "claim", [{"target": TARGET}], "worker-1", 1, 30)
    (head,) = await kernel.rows("agent_state_head", "turn_epoch", "run_id = $2", run_id)
    return log, {"agent_id": f"{run_id}/asker", "turn_id": turn_id, "epoch": head["turn_epoch"], "agent": "asker",
                 "activation_id": f"sig_{run_id}_2", "run": {"version": 1}}  # fmt: skip
