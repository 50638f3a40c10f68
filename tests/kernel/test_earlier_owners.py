"""What a claim returns about the earlier owners of a turn."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Kernel, draft, turn_item
from tests.kernel.waits import defer


@pytest.mark.proves("L0-40")
async def test_claim_returns_the_age_of_a_turn_and_whether_an_earlier_owner_logged_signals(kernel: Kernel) -> None:
    first = await kernel.running()
    assert (first["age_seconds"], first["has_emitted_signals"], first["earlier_epoch"]) == (0, False, None)
    kernel.wait(2.5)
    await kernel.append(first, phase="act")
    await kernel.call("release", [turn_item(first)])
    again = await kernel.claim_one()
    assert (again["age_seconds"], again["has_emitted_signals"]) == (2.5, False)
    await kernel.append(again, draft("agent:progress", again["activation_id"]), phase="act")
    kernel.wait(1)
    await defer(kernel, again, 4)
    kernel.wait(4)
    last = await kernel.claim_one()
    assert (last["age_seconds"], last["has_emitted_signals"]) == (7.5, True)
