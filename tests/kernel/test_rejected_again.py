"""Calls that a limit rejects when their next owner begins them again: a repeated request is checked like the first one (K14)."""

from __future__ import annotations

import pytest

from tests.kernel.circuits import breaker, fail, opened, try_call
from tests.kernel.filled import BREAKER, RATE
from tests.kernel.kit import Item, Kernel, turn_item
from tests.kernel.test_waiting_calls import lost, once
from tests.kernel.waits import begin, wait

HOURLY = {**RATE, "count": 1, "seconds": 3600}


async def open_breaker(kernel: Kernel, claimed: Item) -> None:
    for n in range(3):
        assert await try_call(kernel, claimed, f"f{n}") == "fresh"
        await fail(kernel, claimed, f"f{n}")


@pytest.mark.proves("G-24")
async def test_owner_that_lost_the_answer_of_a_rate_limit_is_rejected_again(kernel: Kernel) -> None:
    limited: Item = {"rates": [HOURLY], "timeout_seconds": 100, "circuit_breaker": None}
    assert await try_call(kernel, await kernel.running(), "c0", **limited) == "fresh"
    claimed = await lost(kernel)
    for _ in range(2):
        assert await try_call(kernel, claimed, "c0", **limited) == "RATE_LIMITED"
    kernel.wait(3600)
    claimed = await lost(kernel)
    answer = await begin(kernel, claimed, "c0", "pure", **limited)
    assert (answer["outcome"], answer["rate"]["wait_seconds"]) == ("again", 0)
    answer = await begin(kernel, claimed, "c0", "pure", **limited)  # this answer was lost too
    assert (answer["outcome"], answer["rate"]["wait_seconds"]) == ("fresh", 0)


@pytest.mark.proves("CB-06", "G-27")
async def test_owner_that_lost_the_answer_of_a_breaker_is_rejected_again(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert await try_call(kernel, claimed, "c0") == "fresh"
    await open_breaker(kernel, claimed)
    claimed = await lost(kernel)
    for _ in range(2):
        assert await try_call(kernel, claimed, "c0") == "CIRCUIT_OPEN"
    kernel.wait(29)
    assert (await begin(kernel, claimed, "c0", "pure", circuit_breaker=BREAKER))["circuit"]["is_trial"]


@pytest.mark.proves("G-24", "S12")
async def test_call_that_a_budget_rejects_on_its_next_owner_takes_a_token_with_its_next_request(kernel: Kernel) -> None:
    limited: Item = {"rates": [{**RATE, "count": 1, "seconds": 60}], "circuit_breaker": None}
    claimed = await kernel.running(budget={"tokens": 10})
    assert await try_call(kernel, claimed, "c0", reserve={"tokens": 4}, **limited) == "fresh"
    claimed = await lost(kernel)
    assert await try_call(kernel, claimed, "c0", reserve={"tokens": 7}, **limited) == "BUDGET_EXCEEDED"
    answer = await begin(kernel, claimed, "c0", "pure", reserve={"tokens": 6}, **limited)
    assert (answer["outcome"], answer["rate"]["wait_seconds"]) == ("again", 29)


@pytest.mark.proves("K14")
async def test_waiting_once_call_that_a_breaker_rejects_without_its_limit_still_waits(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for call_id in ("c0", "c1"):
        await once(kernel, claimed, call_id)
    await open_breaker(kernel, claimed)
    claimed = await lost(kernel)
    for _ in range(2):
        assert (await once(kernel, claimed, "c1", rates=None, circuit_breaker=BREAKER))["code"] == "CIRCUIT_OPEN"
    assert "is_waiting" in (await wait(kernel, "turn_a", "c1"))["rate"]
    assert (await once(kernel, claimed, "c1", rates=None))["outcome"] == "again"
    assert (await once(kernel, await lost(kernel), "c1"))["outcome"] == "in_doubt"


@pytest.mark.proves("CB-04")
async def test_trial_that_a_budget_rejects_on_its_next_owner_makes_room_for_another(kernel: Kernel) -> None:
    await kernel.finish(await opened(kernel), ends="success")
    kernel.wait(60)
    claimed = await kernel.running("run_b", "turn_b", budget={"tokens": 5})
    assert await try_call(kernel, claimed, "c0", reserve={"tokens": 3}) == "fresh"
    claimed = await lost(kernel)
    for _ in range(2):
        answer = await begin(kernel, claimed, "c0", "pure", reserve={"tokens": 3}, circuit_breaker=BREAKER)
        assert (answer["code"], answer.get("circuit")) == ("BUDGET_EXCEEDED", None)
        assert await breaker(kernel) == ("half_open", 0, 0, 0)
    answer = await begin(kernel, claimed, "c0", "pure", reserve={"tokens": 2}, circuit_breaker=BREAKER)
    assert (answer["outcome"], answer["circuit"]["is_trial"]) == ("again", True)
    await fail(kernel, claimed, "c0")
    assert await breaker(kernel) == ("half_open", 1, 0, 0)


@pytest.mark.proves("L0-02")
@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("CIRCUIT_OPEN", {"circuit_breaker": BREAKER}),
        ("BUDGET_EXCEEDED", {"reserve": {"tokens": 6}}),
        ("RATE_LIMITED", {"rates": [{**RATE, "amount": 3}]}),
    ],
)
async def test_lost_owner_of_a_call_is_stale_although_a_limit_rejects_the_call_in_the_same_batch(
    kernel: Kernel, code: str, limit: Item
) -> None:
    earlier = await kernel.running(budget={"tokens": 5})
    assert await try_call(kernel, earlier, "c0", circuit_breaker=None) == "fresh"
    await open_breaker(kernel, earlier)
    claimed = await lost(kernel)
    items = [turn_item(owner, call_id="c0", tool="charge", effect="pure", **limit) for owner in (claimed, earlier)]
    answers = await kernel.call("begin_call", items)
    assert [answer.get("code", answer["outcome"]) for answer in answers] == [code, "stale"]
