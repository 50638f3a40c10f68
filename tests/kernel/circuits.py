"""Calls behind a circuit breaker, for the tests of the kernel."""

from __future__ import annotations

from typing import Any

from tests.kernel.filled import BREAKER
from tests.kernel.kit import Item, Kernel
from tests.kernel.waits import begin, record

ERROR = {"code": "NETWORK_ERROR", "message": "no route", "recoverable": True}


async def try_call(kernel: Kernel, claimed: Item, call_id: str, effect: str = "pure", **fields: Any) -> str:
    """The outcome of begin_call for a call with the breaker, or its code; fields override those of the item."""
    answer = await begin(kernel, claimed, call_id, effect, **{"circuit_breaker": BREAKER, **fields})
    return str(answer.get("code") or answer["outcome"])


async def fail(kernel: Kernel, claimed: Item, call_id: str, error: Item | None = None, **fields: Any) -> None:
    await record(kernel, claimed, call_id, None, **{"status": "failed", "error": error or ERROR, **fields})


async def opened(kernel: Kernel) -> Item:
    """A running turn, whose failures have opened the breaker."""
    claimed = await kernel.running()
    for n in range(3):
        assert await try_call(kernel, claimed, f"f{n}") == "fresh"
        await fail(kernel, claimed, f"f{n}")
    assert await try_call(kernel, claimed, "no") == "CIRCUIT_OPEN"
    return claimed


async def breaker(kernel: Kernel, target: str = "charge") -> tuple[str, int, int, int]:
    """State, failures, successes and trials under way, as `helio db breakers` shows them."""
    (row,) = await kernel.rows("circuit_overview", "*", "target = $2", target)
    return row["state"], row["failures"], row["successes"], row["trials"]


async def half_open(kernel: Kernel, count: int, **fields: Any) -> Item:
    """A running turn with `count` trials of a half-open breaker; fields override those of the items."""
    claimed = await opened(kernel)
    kernel.wait(60)
    for n in range(count):
        assert await try_call(kernel, claimed, f"t{n}", **fields) == "fresh"
    return claimed
