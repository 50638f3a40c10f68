"""Recordings and logs behave as the reference implementation's tests of its stores expect, except where a row says why not.

The facts are in the tests of Open Harness's stores in memory, in files and in SQLite (commits a30a4389, 4d528716, 34a33504). Heliograph has
one store, PostgreSQL, in which the log of each run is its recording, and one format of files.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import HeliographError
from heliograph.playback import Player
from heliograph.recording.export import export_recording
from heliograph.recording.file import read_recording, write_recording
from heliograph.recording.options import RecordingOptions
from heliograph.recording.recording import Recording
from heliograph.signals.model import Signal
from tests.runtime.kit import START, Rig

RUN_IS_THE_RECORDING = "decision 0067: a recording belongs to its run, and has the id of the run"
ERRORS = "a wrong id or path raises an error with a code and the next step; nothing is returned in place of a recording"
RUNTIME_WRITES = "the runtime alone writes the log (SIG-02, SIG-03); a run that has ended accepts nothing"
NO_PROVIDER = (
    "a run has many agents, each with its model: harness:start names it (SIG-25); names and tags group recordings"
)
PRUNED_WITH_ITS_RUN = "a recording is pruned with its run (helio db prune); files are deleted as files. So no login deletes a part of the log"
OF_THE_PLAYER = "checkpoints are names of positions in a player (issue 14, part 6); positions and ids of signals stay valid without them"
LIMIT = "lists have the newest, up to a limit; a position in a list that grows at its front would skip rows"
COUNT = 200


class Stored(NamedTuple):
    """Recorded runs, the newest last, the first of them as a file, too."""

    rig: Rig
    runs: list[str]
    recording: Recording
    path: Path


class Row(NamedTuple):
    """An observation. reference: what the reference implementation's test expects. ours, why: if Heliograph differs."""

    case: str
    observe: Callable[[Stored], Awaitable[object]]
    reference: object
    ours: object = None
    why: str = ""


def of_file(read: Callable[[Stored], object]) -> Callable[[Stored], Awaitable[object]]:
    async def observe(stored: Stored) -> object:
        return read(stored)

    return observe


async def listed(stored: Stored, **filters: Any) -> list[str]:
    return [row.run_id for row in await stored.rig.runtime.reader.recordings(**filters)]


async def names_of(stored: Stored, tag: str) -> int:
    return len(await listed(stored, tag=tag))


async def order_of(stored: Stored) -> list[int]:
    return [stored.runs.index(run_id) for run_id in await listed(stored)]


async def count_of(stored: Stored, limit: int) -> int:
    return len(await listed(stored, limit=limit))


async def is_there(stored: Stored, run_id: str) -> bool:
    return await stored.rig.runtime.reader.recording(run_id) is not None


async def part(stored: Stored) -> list[str]:
    """The names of two signals of the application behind its first one."""
    first = next(each.seq for each in stored.recording.signals if each.name == "event:1")
    return [each.name for each in await stored.rig.runtime.reader.signals(stored.runs[0], after=first, limit=2)]


async def appended(stored: Stored) -> str:
    try:
        await stored.rig.client.enqueue(stored.runs[0], "writer", {"late": True})
    except HeliographError as error:
        return error.code
    return "accepted"


def matching(stored: Stored, pattern: str) -> int:
    player = Player(stored.recording.signals)
    return sum(1 for _ in iter(lambda: player.next(pattern), None))


def error_of(path: Path) -> str:
    try:
        read_recording(path)
    except HeliographError as error:
        return error.code
    return "read"


def event(signals: Iterable[Signal], number: int) -> Signal:
    return next(each for each in signals if each.name == f"event:{number}")


ROWS = [
    Row("a new recording has an id of its own", of_file(lambda s: s.recording.header.run_id == s.runs[0]), False, True,
        RUN_IS_THE_RECORDING),
    Row("it exists", lambda s: is_there(s, s.runs[0]), True),
    Row("it has its name", of_file(lambda s: s.recording.header.name), "test recording"),
    Row("it has its tags", of_file(lambda s: list(s.recording.header.tags)), ["test", "unit"]),
    Row("it has the type of its provider", of_file(lambda s: hasattr(s.recording.header, "harness_type")), True, False, NO_PROVIDER),
    Row("many signals at once", of_file(lambda s: matching(s, "event:*")), COUNT),
    Row("they keep their order", of_file(lambda s: [each.name for each in s.recording.signals if each.name.startswith("event:")]),
        [f"event:{n}" for n in range(COUNT)]),
    Row("a payload is read as it was written", of_file(lambda s: event(s.recording.signals, 1).payload),
        {"nested": {"value": 42}, "array": [1, 2, 3]}),
    Row("a signal keeps its source", of_file(lambda s: event(s.recording.signals, 1).agent), "writer"),
    Row("also its parent", of_file(lambda s: event(s.recording.signals, 1).parent is not None), True),
    Row("a part of the signals", part, ["event:2", "event:3"]),
    Row("the signals that match a pattern", of_file(lambda s: matching(s, "agent:*")), 2),
    Row("an ended recording accepts nothing", appended, "Recording is finalized", "run_ended", RUNTIME_WRITES),
    Row("an unknown recording", lambda s: is_there(s, "run_unknown"), False),
    Row("an unknown file", of_file(lambda s: error_of(s.path.with_name("unknown"))), None, "file_not_found", ERRORS),
    Row("all recordings, the newest first", order_of, [2, 1, 0]),
    Row("those with a tag", lambda s: names_of(s, "test"), 2),
    Row("those with another tag", lambda s: names_of(s, "production"), 1),
    Row("those with a name", lambda s: listed(s, name="nobody"), []),
    Row("a page of the list", lambda s: count_of(s, 2), 2),
    Row("the next page of the list", of_file(lambda s: "offset" in signature(s.rig.runtime.reader.recordings).parameters), True, False, LIMIT),
    Row("each line of a file is JSON", of_file(lambda s: {type(json.loads(line)) for line in s.path.read_text().splitlines()} <= {dict, list}),
        True),
    Row("a file is read by another process as it was written", of_file(lambda s: read_recording(s.path).signals == s.recording.signals), True),
    Row("checkpoints are stored", of_file(lambda s: "checkpoint" in s.path.read_text()), True, False, OF_THE_PLAYER),
    Row("a recording is deleted alone", of_file(lambda s: hasattr(s.rig.client, "delete_recording")), True, False, PRUNED_WITH_ITS_RUN),
]  # fmt: skip


def events_app() -> Heliograph:
    app = Heliograph("events")

    @app.agent(activate_on=START, emits=[f"event:{n}" for n in range(COUNT)])
    def writer(ctx: Context) -> None:
        for n in range(ctx.state["count"]):
            ctx.emit(f"event:{n}", {"nested": {"value": 42}, "array": [1, 2, 3]} if n == 1 else n)

    return app


@pytest.mark.more  # three recorded runs
async def test_recordings_are_as_in_the_reference_implementation(rig: Rig, tmp_path: Path) -> None:
    runs = []
    for count, name, tags in (
        (COUNT, "test recording", ["unit", "test"]),
        (4, None, ["test"]),
        (0, None, ["production"]),
    ):
        result = await rig.runtime.run(events_app().workflow, {"count": count}, record=RecordingOptions(name, tags))
        runs.append(result.run_id)
    recording = await export_recording(rig.runtime.reader, runs[0])
    write_recording(recording, tmp_path / "run.jsonl")
    stored = Stored(rig, runs, recording, tmp_path / "run.jsonl")
    for row in ROWS:
        assert await row.observe(stored) == (row.ours if row.why else row.reference), row.case
