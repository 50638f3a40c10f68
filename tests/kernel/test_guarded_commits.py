"""What breakers and rate limits cost: they ride in the commits that a call makes anyway (CB-06, G-24)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.circuits import opened
from tests.kernel.filled import BREAKER, RATE
from tests.kernel.kit import Item, Kernel
from tests.kernel.test_commits import Counted
from tests.kernel.waits import TOKEN, begin, command, record, report, suspend

GUARDS: list[Any] = [{}, {"circuit_breaker": BREAKER}, {"rates": [RATE]}, {"circuit_breaker": BREAKER, "rates": [RATE]}]
NAMES = ["none", "breaker", "rate", "both"]


@pytest.mark.proves("CB-06", "G-24")
@pytest.mark.parametrize("guards", GUARDS, ids=NAMES)
async def test_guarded_step_makes_the_two_commits_of_any_step(kernel: Kernel, guards: Item) -> None:
    claimed = await kernel.running()
    counted = Counted(kernel)
    assert (await counted(begin(kernel, claimed, "c1", "pure", **guards)))["outcome"] == "fresh"
    assert (await counted(record(kernel, claimed, "c1")))["outcome"] == "ok"
    assert counted.commits == 2


@pytest.mark.proves("CB-06", "G-24")
@pytest.mark.parametrize("guards", GUARDS, ids=NAMES)
async def test_guarded_call_makes_the_commits_of_any_call_for_which_a_turn_is_suspended(
    kernel: Kernel, guards: Item
) -> None:
    claimed = await kernel.running()
    counted = Counted(kernel)
    assert (await counted(suspend(kernel, claimed, command("c1", **guards))))["outcome"] == "suspended"
    assert (await counted(report(kernel, "turn_a", "c1", token=TOKEN)))["outcome"] == "applied"
    assert counted.commits == 2


@pytest.mark.proves("CB-06", "G-24")
@pytest.mark.parametrize("is_suspended", [False, True])
async def test_rejection_is_one_call_that_writes_no_row(kernel: Kernel, is_suspended: bool) -> None:
    claimed = await opened(kernel)
    limit = {**RATE, "count": 1, "seconds": 3600}
    await begin(kernel, claimed, "first", "pure", rates=[limit])
    for call_id, guards in (
        ("open", {"circuit_breaker": BREAKER}),
        ("over", {"rates": [limit], "timeout_seconds": 1.0}),
    ):
        before = await kernel.everything()
        if is_suspended:
            answer = await suspend(kernel, claimed, {**command(call_id), **guards})
        else:
            answer = await begin(kernel, claimed, call_id, "pure", **guards)
        assert (answer["outcome"], answer["code"]) == (
            "rejected",
            {"open": "CIRCUIT_OPEN", "over": "RATE_LIMITED"}[call_id],
        )
        assert await kernel.everything() == before
