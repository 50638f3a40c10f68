"""How long a delta takes from the model to a follower. A timing, so it is run by hand, on a machine that is idle."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from heliograph import ModelReply, ModelRequest, TextDelta
from tests.runtime.kit import Rig
from tests.runtime.loop_kit import agent

PIECES = 200
BETWEEN_SECONDS = 0.013  # many to a batch, and no multiple of it
MEDIAN_SECONDS_MAX = 0.060


class Steady:
    """Says one numbered piece after the other, and keeps when it did."""

    model = "steady"

    def __init__(self) -> None:
        self.said_at: list[float] = []
        self.length = 0
        self.ends: list[int] = []

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
        pieces = [f"{n} " for n in range(PIECES)]
        for piece in pieces:
            await asyncio.sleep(BETWEEN_SECONDS)
            self.length += len(piece)
            self.ends.append(self.length)
            self.said_at.append(time.monotonic())
            yield TextDelta(piece)
        yield ModelReply("".join(pieces))


@pytest.mark.long
@pytest.mark.proves("SIG-28")
async def test_a_delta_reaches_a_follower_in_less_than_sixty_milliseconds(rig: Rig) -> None:
    model = Steady()
    app = agent(model)
    run_id = await rig.start(app)
    took: list[float] = []
    async with rig.serving(app):
        async for signal in rig.runtime.follow(run_id):
            if signal.name == "text:delta":
                now, payload = time.monotonic(), signal.payload
                assert isinstance(payload, dict)
                end = int(str(payload["offset"])) + len(str(payload["content"]))
                while (
                    len(took) < PIECES
                    and model.ends[len(took) : len(took) + 1] <= [end]
                    and len(took) < len(model.ends)
                ):
                    took.append(now - model.said_at[len(took)])
    assert len(took) == PIECES
    tenth = statistics.quantiles(took, n=10)
    told = (
        f"median {statistics.median(took) * 1000:.1f} ms, p90 {tenth[8] * 1000:.1f} ms, most {max(took) * 1000:.1f} ms"
    )
    print(told)
    assert statistics.median(took) < MEDIAN_SECONDS_MAX, told
