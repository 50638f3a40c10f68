"""Calls that wait for their start in a worker: the effect has not happened, so another owner may make the call (K14, G-24)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.filled import RATE
from tests.kernel.kit import Item, Kernel
from tests.kernel.waits import begin, wait

MINUTELY = {**RATE, "count": 1, "seconds": 60}


async def waiting(kernel: Kernel) -> Item:
    """A running turn with a `once` call that begins in a minute."""
    claimed = await kernel.running()
    assert (await once(kernel, claimed, "c0"))["rate"]["wait_seconds"] == 0
    assert (await once(kernel, claimed, "c1"))["rate"]["wait_seconds"] == 60
    return claimed


async def once(kernel: Kernel, claimed: Item, call_id: str, **fields: Any) -> Item:
    return await begin(kernel, claimed, call_id, "once", **{"rates": [MINUTELY], **fields})


async def lost(kernel: Kernel, lease: float = 30) -> Item:
    """The turn as its next owner has it, once the lease of the present one is over."""
    kernel.wait(lease + 1)
    await kernel.sweep("leases")
    return await kernel.claim_one()


@pytest.mark.proves("K14", "G-24")
async def test_next_owner_makes_a_once_call_whose_owner_was_lost_before_its_start(kernel: Kernel) -> None:
    await waiting(kernel)
    claimed = await lost(kernel)
    answer = await once(kernel, claimed, "c1")
    assert (answer["outcome"], answer["rate"]["wait_seconds"]) == ("again", 89)  # it takes a token again
    assert (await once(kernel, claimed, "c0"))["outcome"] == "in_doubt"


@pytest.mark.proves("K14", "G-24")
async def test_once_call_whose_owner_has_begun_it_again_at_its_start_is_in_doubt(kernel: Kernel) -> None:
    claimed = await waiting(kernel)
    kernel.wait(59)
    assert (await once(kernel, claimed, "c1"))["rate"]["wait_seconds"] == 1
    assert "is_waiting" in (await wait(kernel, "turn_a", "c1"))["rate"]
    await kernel.renew(claimed)
    kernel.wait(1)
    assert (await once(kernel, claimed, "c1"))["rate"]["wait_seconds"] == 0
    kernel.wait(29)
    claimed = await lost(kernel, 0)
    kernel.wait(-60)  # no clock makes a call safe that has started
    assert (await once(kernel, claimed, "c1"))["outcome"] == "in_doubt"


@pytest.mark.proves("K14")
async def test_owner_that_begins_its_waiting_call_without_a_limit_has_started_it(kernel: Kernel) -> None:
    claimed = await waiting(kernel)
    assert (await once(kernel, claimed, "c1", rates=None))["outcome"] == "fresh"
    assert (await once(kernel, await lost(kernel), "c1"))["outcome"] == "in_doubt"


@pytest.mark.proves("K14", "G-24")
async def test_waiting_call_that_is_rejected_on_its_next_owner_still_waits(kernel: Kernel) -> None:
    await waiting(kernel)
    assert (await once(kernel, await lost(kernel), "c1", timeout_seconds=1))["code"] == "RATE_LIMITED"
    assert (await once(kernel, await lost(kernel), "c1"))["outcome"] == "again"


@pytest.mark.proves("K2", "G-24")
async def test_lost_owner_cannot_begin_its_waiting_call_again(kernel: Kernel) -> None:
    claimed = await waiting(kernel)
    await lost(kernel)
    assert (await once(kernel, claimed, "c1"))["outcome"] == "stale"
