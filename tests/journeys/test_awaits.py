"""A worker is killed at some awaits of a ten-step agent; the long test kills it at all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.awaits import kill_at_every_await, summary
from tests.journeys.awaits_app import MODELS

EVERY = 36  # some 220 places in a run: six of them in each protocol, and not the same
FIRST = {"anthropic": 5, "openai": 23}


@pytest.mark.proves("K1", "K7", "K13", "K14", "L0-100", "L0-111")
@pytest.mark.timeout(110)
@pytest.mark.parametrize("protocol", sorted(MODELS))
async def test_killed_at_an_await_a_ten_step_agent_has_each_effect_once_and_a_valid_conversation(
    database_url: str, tmp_path: Path, protocol: str
) -> None:
    report = await kill_at_every_await(database_url, tmp_path, protocol, first=FIRST[protocol], every=EVERY, lanes=2)
    assert report.problems == []
    assert (report.kills >= 5, report.whole >= 1) == (True, True), summary(report, protocol)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", sorted(MODELS))
async def test_killed_at_every_await_a_ten_step_agent_has_each_effect_once_and_a_valid_conversation(
    database_url: str, tmp_path: Path, protocol: str
) -> None:
    report = await kill_at_every_await(database_url, tmp_path, protocol, lanes=2)
    print(summary(report, protocol))
    assert report.problems == []
    assert report.kills > 150
    assert {"model:asked", "model:speaks", "model:answered", "tool:begun", "tool:happened", "commit:done",
            "suspend:done", "begin_call:done", "record_call:done"} <= set(report.places)  # fmt: skip
    # two of some 200 places of a run: the order of the others changes, so a single one may never be the place of a death
    assert {"before_finish", "finish:done", "finish_and_claim:done"} & set(report.places)
