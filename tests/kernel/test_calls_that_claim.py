"""Starts and reports, and the claim of the turns that they wake, in one call."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Kernel, run_item, turn_item
from tests.kernel.waits import TOKEN, command
from tests.logins import connected, login


def started(name: str) -> dict[str, Any]:
    return run_item(f"run_{name}", ["writer"], {f"turn_{name}": "writer"})


def with_claim(items: list[Any], limit: int = 10, lease_seconds: float = 30.0) -> tuple[Any, ...]:
    return items, [{"target": TARGET}], "w1", limit, lease_seconds


async def runs_named(kernel: Kernel, run_id: str) -> int:
    query = "select count(*) from heliograph.runs where project_id = $1 and run_id = $2"
    found: int = await kernel.connection.fetchval(query, kernel.project, run_id)
    return found


async def test_runs_start_and_their_turns_are_claimed(kernel: Kernel) -> None:
    answer = await kernel.call("start_and_claim", *with_claim([started("b"), started("a")]))
    assert [row["outcome"] for row in answer["started"]] == ["started", "started"]
    assert sorted(row["turn_id"] for row in answer["claimed"]) == ["turn_a", "turn_b"]
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["turn_epoch"], head["owner"]) == ("running", 2, "w1")


async def test_older_turns_are_claimed_before_those_that_the_call_starts(kernel: Kernel) -> None:
    await kernel.start("run_old", ["writer"], {"turn_old": "writer"})
    kernel.wait(1)
    answer = await kernel.call("start_and_claim", *with_claim([started("new")], limit=1))
    assert [row["turn_id"] for row in answer["claimed"]] == ["turn_old"]
    assert (await kernel.head("run_new/writer"))["status"] == "dispatched"


async def test_second_start_is_a_duplicate_and_claims_what_is_ready(kernel: Kernel) -> None:
    await kernel.call("start_runs", [started("a")])
    answer = await kernel.call("start_and_claim", *with_claim([started("a")]))
    assert [row["outcome"] for row in answer["started"]] == ["duplicate"]
    assert [row["turn_id"] for row in answer["claimed"]] == ["turn_a"]
    again = await kernel.call("start_and_claim", *with_claim([started("a")]))
    assert again["claimed"] == []


async def test_result_is_recorded_and_the_resumed_turn_is_claimed(kernel: Kernel) -> None:
    turn = await kernel.running()
    await kernel.call("suspend", [turn_item(turn, calls=[command("c1")])])
    report = {"turn_id": "turn_a", "call_id": "c1", "token": TOKEN, "status": "success", "result": {"n": 1}}
    answer = await kernel.call("report_and_claim", *with_claim([report]))
    assert [(row["outcome"], row["resumed"]) for row in answer["reported"]] == [("applied", True)]
    [claimed] = answer["claimed"]
    assert [(wait["call_id"], wait["state"]) for wait in claimed["waits"]] == [("c1", "resolved")]


@pytest.mark.parametrize(("limit", "lease_seconds"), [(0, 30.0), (1001, 30.0), (1, 0.0)])
async def test_rejected_claim_starts_no_run_and_records_no_result(
    kernel: Kernel, limit: int, lease_seconds: float
) -> None:
    turn = await kernel.running()
    await kernel.call("suspend", [turn_item(turn, calls=[command("c1")])])
    report = {"turn_id": "turn_a", "call_id": "c1", "token": TOKEN, "status": "success", "result": 1}
    for function, item in (("start_and_claim", started("b")), ("report_and_claim", report)):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await kernel.call(function, *with_claim([item], limit, lease_seconds))
    assert await runs_named(kernel, "run_b") == 0
    assert (await kernel.head("run_a/writer"))["status"] == "suspended"


@pytest.mark.parametrize(
    ("services", "denied"),
    [(("worker", "api"), None), (("worker",), "start_runs"), (("api",), "claim")],
)
async def test_login_needs_the_rights_to_start_and_to_claim(
    kernel: Kernel, shared_url: str, services: tuple[str, ...], denied: str | None
) -> None:
    async with login(shared_url, kernel.project, services=services) as url, connected(url) as connection:
        service = Kernel(connection, kernel.project, datetime.now(UTC))
        if denied is None:
            answer = await service.call("start_and_claim", *with_claim([started("a")]))
            assert [row["turn_id"] for row in answer["claimed"]] == ["turn_a"]
        else:
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match=f"function {denied}"):
                await service.call("start_and_claim", *with_claim([started("a")]))
            assert await runs_named(kernel, "run_a") == 0


async def test_login_of_another_project_starts_and_claims_nothing(kernel: Kernel, shared_url: str) -> None:
    async with (
        login(shared_url, f"{kernel.project}-other", services=("worker", "api")) as url,
        connected(url) as connection,
    ):
        service = Kernel(connection, kernel.project, datetime.now(UTC))
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="project"):
            await service.call("start_and_claim", *with_claim([started("a")]))
