"""measure: what waits in a project, its leases, messages, circuit breakers and budgets, for metrics."""

from __future__ import annotations

from typing import Any

from tests.kernel.filled import fill
from tests.kernel.kit import TARGET, Kernel
from tests.kernel.waits import begin, command, defer, suspended


def waiting(state: str, count: int, seconds: float, pool: str = "default") -> dict[str, Any]:
    return {"application": TARGET, "pool": pool, "state": state, "count": count, "seconds": seconds}


def leases(state: str, count: int) -> dict[str, Any]:
    return {"application": TARGET, "state": state, "count": count}


async def test_measurement_counts_turns_that_wait_and_the_age_of_the_oldest(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_q")
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    await defer(kernel, await kernel.claim_one(), 30)
    kernel.wait(5)
    await kernel.start("run_c", ["writer"], {"turn_c": "writer"})
    kernel.wait(5)
    await kernel.start("run_d", ["writer"], {"turn_d": "writer"})
    measured = await kernel.call("measure")
    assert measured["queues"] == [waiting("deferred", 1, 0), waiting("queued", 1, 10), waiting("ready", 2, 5)]
    assert measured["leases"] == [leases("valid", 1)]
    kernel.wait(25)
    measured = await kernel.call("measure")
    assert measured["queues"] == [waiting("deferred", 1, 5), waiting("queued", 1, 35), waiting("ready", 2, 30)]
    assert measured["leases"] == [leases("expired", 1)]


async def test_measurement_counts_messages_by_kind_from_the_time_at_which_they_are_due(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"))
    await kernel.finish(await kernel.running("run_b", "turn_b"), ends="success")
    kernel.wait(7)
    outbox = {each["kind"]: each for each in (await kernel.call("measure"))["outbox"]}
    assert outbox["cmd"] == {"kind": "cmd", "count": 1, "seconds": 7}
    assert outbox["task_event"]["seconds"] == 7
    await kernel.publish()
    assert "task_event" not in {each["kind"] for each in (await kernel.call("measure"))["outbox"]}


async def test_measurement_adds_the_budgets_of_open_turns_only(kernel: Kernel) -> None:
    claimed = await kernel.running(budget={"tokens": 100})
    await kernel.running("run_b", "turn_b", budget={"tokens": 50})
    await begin(kernel, claimed, "c1", reserve={"tokens": 60})
    assert (await kernel.call("measure"))["budgets"] == [{"kind": "tokens", "maximum": 150, "used": 0, "reserved": 60}]
    await kernel.stop("turn_a")
    assert (await kernel.call("measure"))["budgets"] == [{"kind": "tokens", "maximum": 50, "used": 0, "reserved": 0}]


async def test_measurement_counts_circuit_breakers_by_state(kernel: Kernel) -> None:
    await kernel.harm(
        "insert into circuit_breakers (project_id, type, target, state, generation, changed_at)"
        " select $1, 'tool_call', 'tool_' || n, 'closed', 1, '2026-01-01' from generate_series(1, 120) n",
        "insert into circuit_breakers (project_id, type, target, state, generation, changed_at, open_until)"
        " values ($1, 'delegation', 'writer', 'open', 1, '2026-01-02', '2026-01-03')",
    )
    kernel.is_corrupted = True
    assert (await kernel.call("measure"))["breakers"] == [
        {"type": "delegation", "state": "open", "count": 1},
        {"type": "tool_call", "state": "closed", "count": 99},
    ]


async def test_measurement_changes_nothing_and_sees_its_own_project_only(kernel: Kernel) -> None:
    await fill(kernel)
    before = await kernel.everything()
    measured = await kernel.call("measure")
    assert await kernel.everything() == before
    assert measured["leases"]
    empty: dict[str, list[Any]] = {"queues": [], "leases": [], "outbox": [], "breakers": [], "budgets": []}
    assert await kernel.call("measure", project=f"{kernel.project}-other") == empty
