"""Recordings of runs on PostgreSQL that nobody recorded: tasks of other systems, forks, pruned logs, damaged rows and runs that continue."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import KernelRejected
from heliograph.recording.export import export_recording
from heliograph.recording.file import read_recording, write_recording
from heliograph.recording.ledger_parts import ENDED_SINCE
from heliograph.recording.replay_recording import ReplayResult, replay_recording
from heliograph.run_fork import fork_run
from heliograph.testing import eventually
from tests.recording.test_replay import THIN, thin
from tests.runtime.gateway_kit import delegation, gateway_of
from tests.runtime.kit import SOON_SECONDS, Rig
from tests.runtime.test_gateway import application


async def replayed(rig: Rig, app: Heliograph, run_id: str) -> ReplayResult:
    result = replay_recording(await export_recording(rig.runtime.reader, run_id), app.workflow)
    assert result.is_same, [*result.lines()]
    return result


async def test_run_of_a_task_from_another_system_is_reproduced(rig: Rig) -> None:
    app = application()
    async with gateway_of(rig, app) as served, rig.serving(app):
        await served.post(delegation())
    result = await replayed(rig, app, (await rig.turn_of("double")).run_id)
    assert [gap.part for gap in result.gaps] == ["run"]
    reported = [
        s for s in result.signals if s.name in ("delegation", "agent:activated")
    ]  # the start has them from the task
    assert result.reproduced == len(result.signals) - len(reported)


async def test_turn_of_a_fork_that_found_calls_is_a_gap(rig: Rig) -> None:
    app = thin()
    result = await rig.run(app, THIN, run_id="origin")
    done = next(s.seq for s in result.signals if s.name == "tool:result" and s.agent == "join")
    for at, parts in ((1, 2), (done, 0)):
        await fork_run(rig.runtime, app.workflow, "origin", at, None, f"fork-{at}")
        async with rig.serving(app):
            await rig.ended(f"fork-{at}")
        forked = await replayed(rig, app, f"fork-{at}")
        found = [gap.reason for gap in forked.gaps if gap.reason.startswith("it continues a turn")]
        assert (len(forked.recording.parts), len(found)) == (parts, 0 if parts else 1)


@pytest.mark.parametrize("memory", ["7", "[1]", "{}", '{"agents": [7]}', "null"])
async def test_damaged_memory_of_a_run_costs_only_its_start(rig: Rig, tmp_path: Path, memory: str) -> None:
    result = await rig.run(thin(), THIN, run_id="damaged")
    change = "update heliograph.runs set memory = $2 where project_id = $1 and run_id = 'damaged'"
    await rig.fetch(change, rig.runtime.settings.project, memory)
    write_recording(await export_recording(rig.runtime.reader, "damaged"), tmp_path / "run.jsonl")
    found = replay_recording(read_recording(tmp_path / "run.jsonl"), thin().workflow)
    assert [gap.part for gap in found.gaps] == ["run", "start"]
    assert (found.is_same, found.reproduced) == (True, len(result.signals) - 3)


async def test_pruned_log_and_pruned_turns_are_gaps(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.run(thin(), THIN, run_id="old")
    reader = rig.runtime.reader
    turns, memory = await reader.ended_turns("old")
    signals, untrusted = await reader.signals_with_trust("old")

    async def fewer_turns(_run_id: str) -> Any:
        return turns[1:], memory

    async def fewer_signals(_run_id: str) -> Any:
        return signals[5:], untrusted

    monkeypatch.setattr(reader, "ended_turns", fewer_turns)
    result = await replayed(rig, thin(), "old")
    assert [gap.reason for gap in result.gaps[1:]] == [ENDED_SINCE]
    monkeypatch.setattr(reader, "signals_with_trust", fewer_signals)
    result = await replayed(rig, thin(), "old")
    assert ([gap.part for gap in result.gaps], result.recording.parts) == (["run", "log"], [])


async def test_box_that_cannot_be_read_costs_only_its_turns(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.run(thin(), THIN, run_id="boxed")

    async def damaged(_box_id: str) -> Any:
        raise KernelRejected("a row cannot be decoded")

    monkeypatch.setattr(
        "heliograph.recording.ledger_parts.boxes_of", lambda claimed: ["box"] * (claimed.agent == "ann")
    )
    monkeypatch.setattr(rig.runtime.reader, "cards_of_box", damaged)
    result = await replayed(rig, thin(), "boxed")
    assert [gap.reason for gap in result.gaps[1:]] == ["a box that it could read: a row cannot be decoded"]


async def test_turn_that_ends_during_the_export_has_all_its_signals(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app, may_end = Heliograph("long"), asyncio.Event()

    @app.agent(activate_on=["workflow:start"], updates="sum")
    async def adder(ctx: Context) -> int:
        await ctx.step("wait", may_end.wait)
        return 1

    await rig.start(app, run_id="long")
    running = asyncio.create_task(rig.run(app, run_id="long"))
    await eventually(rig, "long", "tool:call", within_seconds=SOON_SECONDS)
    reader, read = rig.runtime.reader, rig.runtime.reader.signals_with_trust

    async def late(run_id: str) -> Any:
        """The run ends after its log was read."""
        found = await read(run_id)
        may_end.set()
        await running
        return found

    monkeypatch.setattr(reader, "signals_with_trust", late)
    result = await replayed(rig, app, "long")
    assert [gap.part for gap in result.gaps] == ["run"]
    assert "workflow:end" in {signal.name for signal in result.signals}
