"""`release` with a failure ends a turn that no worker can run, in both kernels alike, and only for its owner."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from heliograph.codes import UNDECODABLE
from heliograph.errors import KernelRejected
from heliograph.testing.kernel.in_memory import InMemoryKernel
from tests.kernel.kit import START, TARGET, Kernel, run_item

FAILURE = {"code": UNDECODABLE, "message": "run/state/n is a number of 5001 digits"}


def gate(claimed: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{key: claimed[key] for key in ("agent_id", "turn_id", "epoch")} | {"failure": FAILURE} | fields]


@pytest.mark.proves("S22")
async def test_turn_released_with_a_failure_ends_as_failed_with_its_deliverable(kernel: Kernel) -> None:
    claimed = await kernel.running()
    stale = await kernel.call("release", gate(claimed, epoch=claimed["epoch"] - 1))
    assert stale[0]["outcome"] == "stale"
    [answer] = await kernel.call("release", gate(claimed))
    turn = await kernel.turn("turn_a")
    assert (answer["outcome"], turn["state"], turn["outcome"], turn["attempts"]) == ("ok", "done", "failed", 0)
    [card] = await kernel.rows("cards", "card_id, content", "kind = 'task.deliverable'")
    assert card["content"]["error"] == {**FAILURE, "recoverable": False}
    assert (await kernel.pending())[0]["signals"][0]["name"] == "agent:failed"
    assert (await kernel.call("release", gate(claimed)))[0]["outcome"] == "stale"


async def test_both_kernels_answer_a_failure_alike(kernel: Kernel) -> None:
    claimed = await kernel.running()
    in_memory_kernel = InMemoryKernel()
    in_memory_kernel.call(
        "start_runs", (kernel.project, [run_item("run_a", ["writer", "critic"], {"turn_a": "writer"})]), START
    )
    [same] = in_memory_kernel.call("claim", (kernel.project, [{"target": TARGET}], "worker-1", 100, 30.0), START)
    assert in_memory_kernel.call("release", (kernel.project, gate(same)), START) == await kernel.call(
        "release", gate(claimed)
    )
    [row] = [each for each in in_memory_kernel.dump(kernel.project)["agent_turns"] if each["agent_turn_id"] == "turn_a"]
    assert (row["state"], row["outcome"]) == ("done", "failed")


@pytest.mark.parametrize(
    "failure", [None, {}, {"code": "X"}, {"code": "", "message": "x"}, {"code": "X", "message": "y" * 5000}, 7]
)
async def test_empty_failure_is_rejected_by_both_kernels(kernel: Kernel, failure: Any) -> None:
    claimed = await kernel.running()
    with pytest.raises(asyncpg.InvalidParameterValueError, match="a failure must have a code"):
        await kernel.call("release", gate(claimed, failure=failure))
    with pytest.raises(KernelRejected, match="a failure must have a code"):
        InMemoryKernel().call("release", (kernel.project, gate(claimed, failure=failure)))
    assert (await kernel.turn("turn_a"))["state"] == "active"
