"""Recordings made by workers that die, and by several workers: every signal that a worker wrote is replayed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Heliograph, tool
from heliograph.models import ScriptedModel, ToolCall
from heliograph.recording.file import lines_of
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import replay_recording
from heliograph.testing import Simulation, crash_at_every_await
from tests.recording import killed_app
from tests.recording.simulated import record_simulated
from tests.recording.topologies import topology

KERNEL = {"tool:result", "delegation_response", "agent:failed"}  # signals that the kernel writes as well


def assert_whole(found: Recording, app: Heliograph) -> None:
    """Replay a recording, and the replay: each signal of a worker is given again, bit for bit, and nothing is a gap."""
    result = replay_recording(found, app.workflow)
    assert result.is_same, list(result.lines())
    assert result.gaps == []
    written = {seq for part in found.parts for call in part.calls() if "first" in call[4]
               for seq in range(call[4]["first"], call[4]["first"] + call[4]["count"])}  # fmt: skip
    assert result.reproduced == len(written)
    assert {signal.name for signal in found.signals if signal.seq not in written} <= KERNEL
    assert list(lines_of(result.recording)) == list(lines_of(found))


@pytest.mark.more
@pytest.mark.proves("SIG-04")
def test_recordings_of_killed_workers_are_replayed_without_gaps() -> None:
    claims = 0
    for seed in range(5):
        found = record_simulated(topology(seed), seed, workers=3, faults=True)
        assert_whole(found, topology(seed))
        claims += sum(not any(call[2] in ("finish", "suspend", "defer") for call in part.calls())
                      for part in found.parts if "claimed" in part.data)  # fmt: skip
    assert claims, "no claim was lost with its worker after a commit"


@pytest.mark.more
@pytest.mark.proves("SIG-04")
def test_recording_is_whole_wherever_its_worker_dies() -> None:
    async def scenario(sim: Simulation) -> str:
        app = killed_app.app_of(lambda name: None)
        served = sim.serve(app)
        run_id = await served.start({"text": "hello"}, record=True)
        result = await served.result(run_id)
        assert_whole(await served.recording(run_id), app)
        return result.outcome

    report = crash_at_every_await(scenario, every=11)
    assert report.crashes > 5


@pytest.mark.proves("SIG-04")
def test_recording_is_whole_though_replies_to_commits_are_lost() -> None:
    found = record_simulated(topology(6), 6, faults=True)
    assert_whole(found, topology(6))


def approved_calls() -> Heliograph:
    """Calls of trusted and untrusted tools side by side; those after untrusted content need an approval."""
    app, script = Heliograph("approved", memory=None), [("good", "bad"), ("good",), ("fetch", "good", "bad")]

    @tool(effect="idempotent", trusted=False)
    async def bad() -> str:
        await asyncio.sleep(0.1)
        raise ValueError("no")

    @tool(effect="idempotent", trusted=False)
    async def fetch() -> str:
        await asyncio.sleep(0.05)
        return "page"

    @tool(effect="idempotent")
    async def good() -> str:
        return "ok"

    batches: list[Any] = [[ToolCall(f"{n}", name, {}) for n, name in enumerate(names)] for names in script]
    app.prompt_agent("asker", "Ask", model=ScriptedModel([*batches, "done"], per_turn=True), tools=[bad, fetch, good],
                     activate_on=["workflow:start"], updates="found", max_attempts=50)  # fmt: skip
    return app


@pytest.mark.more
def test_recording_needs_no_pause_that_began_after_the_last_commit_of_a_killed_worker() -> None:
    for seed in range(30, 40):
        result = replay_recording(
            record_simulated(approved_calls(), seed, workers=3, faults=True), approved_calls().workflow
        )
        assert not any("no sleep" in line for line in result.lines()), (seed, list(result.lines()))
