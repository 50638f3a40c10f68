"""Recordings on PostgreSQL: beside the signals of each commit, and nothing for a run that is not recorded."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heliograph import Context, Heliograph
from heliograph.errors import InvalidInput, NotFound, Rejected
from heliograph.execution import recorded_inputs
from heliograph.execution.packed_commit import packed_claim
from heliograph.models import ScriptedModel, ToolCall
from heliograph.playback.timeline import Timeline
from heliograph.recording.export import export_recording
from heliograph.recording.file import lines_of, read_recording, write_recording
from heliograph.recording.modes import ReplayDiverged, chosen_mode, replay_run
from heliograph.recording.options import RecordingOptions
from heliograph.recording.replay_recording import replay_recording
from heliograph.records import Claimed
from heliograph.testing import eventually
from heliograph.tools import MCPServer
from tests.reach.test_mcp import ODD
from tests.recording.number_app import IN_ANOTHER_FORM, NUMBERS, form_app, number_app
from tests.recording.test_replay import THIN, thin
from tests.runtime.kit import SOON_SECONDS, Rig


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "from the ledger"])
async def test_numbers_and_objects_that_the_database_writes_in_another_form_are_replayed(
    rig: Rig, tmp_path: Path, *, is_recorded: bool
) -> None:
    record = RecordingOptions("numbers") if is_recorded else None
    result = await rig.runtime.run(number_app(NUMBERS).workflow, {"numbers": NUMBERS}, record=record)
    assert result.outcome == "success"
    recording = await export_recording(rig.runtime.reader, result.run_id)
    write_recording(recording, tmp_path / "run.jsonl")
    found = read_recording(tmp_path / "run.jsonl")
    for each in (recording, found):
        replayed = replay_recording(each, number_app(NUMBERS).workflow)
        assert replayed.is_same, list(replayed.lines())
        assert list(lines_of(replayed.recording)) == list(lines_of(found))
    changed = replay_recording(found, number_app([*NUMBERS[:-1], 0.3]).workflow)
    assert changed.first is not None
    assert changed.first.agent == "first"


@pytest.mark.proves("SIG-02", "SIG-04")
@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "from the ledger"])
@pytest.mark.parametrize("form", IN_ANOTHER_FORM)
async def test_number_that_changes_its_form_in_the_state_is_replayed_and_played(
    rig: Rig, tmp_path: Path, form: str, *, is_recorded: bool
) -> None:
    record = RecordingOptions("forms") if is_recorded else None
    result = await rig.runtime.run(form_app(form).workflow, {"book": IN_ANOTHER_FORM[form][0]}, record=record)
    assert result.outcome == "success"
    assert result.state["said"] == str(result.state["book"])
    recording = await export_recording(rig.runtime.reader, result.run_id)
    write_recording(recording, tmp_path / "run.jsonl")
    for each in (recording, read_recording(tmp_path / "run.jsonl")):
        replayed = replay_recording(each, form_app(form).workflow)
        assert replayed.is_same, list(replayed.lines())
        timeline = Timeline()
        assert str(timeline.snapshot(timeline.extend(each.signals)).state["book"]) == result.state["said"]


@pytest.mark.proves("SIG-04", "G-45")
async def test_run_on_postgres_is_replayed_without_sockets(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await rig.runtime.run(thin().workflow, THIN, record=RecordingOptions("thin", ["nightly"]))
    recording = await export_recording(rig.runtime.reader, result.run_id)
    write_recording(recording, tmp_path / "run.jsonl")
    assert list(recording.signals) == result.signals
    assert (len(recording.parts), recording.gaps) == (4, [])
    assert [row.run_id for row in await rig.runtime.reader.recordings(tag="nightly")] == [result.run_id]
    assert await rig.runtime.reader.recordings(name="other") == []

    def forbidden(*args: object, **options: object) -> None:
        raise AssertionError("a replay opens no socket")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, name, forbidden, raising=False)
    monkeypatch.setattr(socket, "socketpair", forbidden)
    found = read_recording(tmp_path / "run.jsonl")
    replayed = replay_recording(found, thin().workflow)
    assert replayed.is_same, list(replayed.lines())
    assert list(lines_of(replayed.recording)) == list(lines_of(found))
    assert replay_run(found, thin().workflow, THIN).signals == result.signals
    with pytest.raises(ReplayDiverged, match="agent:activated differs"):
        replay_run(found, thin(guard=lambda state: False).workflow, THIN)
    with pytest.raises(InvalidInput, match="began with another state"):
        replay_run(found, thin().workflow, {"text": "bye"})


async def test_run_that_is_not_recorded_has_no_rows_and_is_replayed_from_the_ledger(rig: Rig, tmp_path: Path) -> None:
    result = await rig.runtime.run(thin().workflow, THIN)
    assert [commit async for commit in rig.runtime.reader.recorded_commits(result.run_id)] == []
    recording = await export_recording(rig.runtime.reader, result.run_id)
    assert list(recording.signals) == result.signals
    assert ([part.name.partition("_")[0] for part in recording.parts], [gap.part for gap in recording.gaps]) == (
        ["start", "turn", "turn", "turn"], ["run"])  # fmt: skip
    write_recording(recording, tmp_path / "run.jsonl")
    for each in (recording, read_recording(tmp_path / "run.jsonl")):
        replayed = replay_recording(each, thin().workflow)
        assert (replayed.is_same, replayed.reproduced, len(replayed.gaps)) == (True, len(result.signals), 1), [
            *replayed.lines()
        ]
    changed = replay_recording(recording, thin(prompt="Find {state.text}").workflow)
    assert changed.first is not None
    assert (changed.first.kind, changed.first.agent) == ("request", "ann")


async def test_signal_without_a_payload_is_replayed(rig: Rig) -> None:
    app = Heliograph("plain")

    @app.agent(activate_on=["workflow:start"], emits=["noted"])
    async def noter(ctx: Context) -> None:
        ctx.emit("noted")
        ctx.emit("noted", {})

    await rig.run(app, run_id="plain", record=RecordingOptions())
    replayed = replay_recording(await export_recording(rig.runtime.reader, "plain"), app.workflow)
    assert replayed.is_same, list(replayed.lines())


async def test_claim_that_refers_to_the_start_of_its_run_is_exported_as_the_kernel_returned_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, claims, bodies = Heliograph("plain"), list[bytes](), list[Any]()

    def kept(claimed: Claimed, project: str, *, is_observed: bool) -> list[Any]:
        claims.append(msgspec.json.encode(claimed.run))
        bodies.append(packed_claim(claimed, project, is_observed=is_observed))
        return bodies[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(recorded_inputs, "packed_claim", kept)

    @app.agent(activate_on=["workflow:start"], emits=["one"])
    async def first(ctx: Context) -> None:
        ctx.emit("one")

    @app.agent(activate_on=["one"])
    async def second(_: Context) -> None:
        """Find the run changed."""

    state = {"zz": [1e22, -0.0, 1.5e-7, {"\N{LATIN SMALL LETTER E WITH ACUTE}": 1, "yyy": 2, "x": None}], "b": 1.0}
    await rig.runtime.run(app.workflow, state, run_id="plain", record=RecordingOptions())
    found = await export_recording(rig.runtime.reader, "plain")
    assert found.gaps == []
    claimed: list[Any] = [part.data["claimed"] for part in found.parts if "claimed" in part.data]
    runs = [each["run"] for each in claimed]
    assert [msgspec.json.encode(run) for run in runs] == claims, "with the order of keys and the form of numbers"
    assert ["yyy" in str(body) for body in bodies] == [False, True], "only the first turn finds the run as it started"


@pytest.mark.parametrize(
    "body",
    ["no JSON", "7", "[" * 100_000, "[]", '["start", -1, [], 1, "start_runs", {}]', '["start", 0, [["call", 1]], 1, "start_runs", {}]',
     '["start", 0, [["call", 1, "start_runs", {}]], 2, "start_runs", {}]', '["start", 0, [{}], 1, "start_runs", {}]', '["start", 0, [], 1, "start_runs", {}, {}]', '["start", 0, [], 1, "start_runs", {}, [1]]',
     '["start", 0, [], 1, "start_runs", {}, null, 7]', '["start", 0, 5, 1, "start_runs", {}]'],
    ids=lambda body: body[:60],
)  # fmt: skip
async def test_damaged_recording_of_a_run_fails_its_own_export_alone(rig: Rig, body: str) -> None:
    for name in ("good", "damaged"):
        await rig.runtime.run(thin().workflow, THIN, run_id=name, record=RecordingOptions())
    change = "update heliograph.signals set recording = $2 where project_id = $1 and run_id = 'damaged' and seq = 1"
    await rig.fetch(change, rig.runtime.settings.project, body.replace('"', "`"))  # as packed_text writes quotes
    with pytest.raises(Rejected, match="run damaged cannot be exported: what it recorded with its signal 1") as caught:
        await export_recording(rig.runtime.reader, "damaged")
    assert (caught.value.code, len(caught.value.message) < 1000) == ("invalid_recording", True)
    found = await export_recording(rig.runtime.reader, "good")
    assert (found.gaps, replay_recording(found, thin().workflow).is_same) == ([], True)


async def test_recording_of_an_earlier_version_has_its_own_message(rig: Rig) -> None:
    await rig.runtime.run(thin().workflow, THIN, run_id="old", record=RecordingOptions())
    change = "update heliograph.signals set recording = $2 where project_id = $1 and run_id = 'old' and seq = 1"
    for body in ('{"part":"start","from":0,"call":1,"entries":[]}', "{`part`:`start`,`from`:0,`call`:1,`entries`:[]}",
                 "[`start`,0,[],1,`start_runs`,{`reaction`:{`version`:0,`activations`:[],`state`:null,`changed`:{}}},[{},{}]]"):  # fmt: skip
        await rig.fetch(change, rig.runtime.settings.project, body)
        with pytest.raises(
            Rejected, match="earlier version of Heliograph; export it with that version, or record"
        ) as caught:
            await export_recording(rig.runtime.reader, "old")
        assert caught.value.code == "invalid_recording"


async def test_export_of_a_run_that_continues_ends_with_a_commit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app, may_go_on = Heliograph("long"), asyncio.Event()

    @app.agent(activate_on=["workflow:start"], updates="sum")
    async def adder(ctx: Context) -> int:
        first = await ctx.step("first", lambda: 1)
        await ctx.step("wait", may_go_on.wait)
        return int(first) + int(await ctx.step("second", lambda: 2))

    await rig.runtime.start(app.workflow, None, "long", record=RecordingOptions())
    running = asyncio.create_task(rig.run(app, record=RecordingOptions(), run_id="long"))
    await eventually(rig, "long", "tool:result", within_seconds=SOON_SECONDS)
    reader, read = rig.runtime.reader, rig.runtime.reader.recorded_commits

    async def late(run_id: str) -> Any:
        """The run ends after its log was read."""
        may_go_on.set()
        await running
        async for commit in read(run_id):
            yield commit

    monkeypatch.setattr(reader, "recorded_commits", late)
    found = await export_recording(reader, "long")
    assert "workflow:end" not in {signal.name for signal in found.signals}
    replayed = replay_recording(found, app.workflow)
    assert replayed.is_same, list(replayed.lines())
    assert replayed.gaps == []


def test_auto_mode_records_only_outside_ci(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert chosen_mode("auto", path, {}) == "record"
    assert chosen_mode("auto", path, {"CI": "false"}) == "record"
    with pytest.raises(NotFound, match="CI records none"):
        chosen_mode("auto", path, {"CI": "true"})
    with pytest.raises(NotFound, match="record the run first"):
        chosen_mode("replay", path, {})
    path.touch()
    assert chosen_mode("auto", path, {"CI": "true"}) == "replay"


def served_by(command: list[str]) -> Heliograph:
    """An application whose agent has the tools of an MCP server, and asks a person."""
    app = Heliograph("served")
    script = ScriptedModel([ToolCall("1", "pid", {}), "That is it."], per_turn=True)
    app.prompt_agent("finder", "Find.", model=script, tools=[MCPServer(command, name="odd", tools=["pid"])],
                     activate_on=["workflow:start"], updates="found")  # fmt: skip

    @app.agent(activate_on=["workflow:start"], updates="colour")
    async def asker(ctx: Context) -> str:
        return f"{await ctx.ask('Which colour?', options=['red', 'blue'])} it is"

    return app


@pytest.mark.more
@pytest.mark.proves("SIG-04")
async def test_tools_of_a_server_and_human_answers_are_replayed_without_either(rig: Rig) -> None:
    app = served_by([sys.executable, ODD])
    running = asyncio.create_task(rig.run(app, record=RecordingOptions(), run_id="served"))
    while not running.done():
        for task in await rig.client.approvals("served"):
            if task.agent == "asker":
                await rig.client.answer(task.turn_id, task.call_id, "blue", by="ann")
            else:  # the tools of a server are untrusted
                await rig.client.grant(task.turn_id, task.call_id, by="ann")
        await asyncio.sleep(0.05)
    result = await running
    assert result.state["colour"] == "blue it is"
    found = await export_recording(rig.runtime.reader, "served")
    replayed = replay_recording(found, served_by(["/nowhere/there-is-no-such-program"]).workflow)
    assert replayed.is_same, list(replayed.lines())
    assert replayed.gaps == []
    assert list(lines_of(replayed.recording)) == list(lines_of(found))
