"""A value in the state is recorded by its new parts, and replays reproduce them: also in recordings of versions that recorded whole values."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph import Context, Heliograph
from heliograph.playback.timeline import Timeline
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import replay_recording
from heliograph.signals.state_change import changed_key, changed_value
from tests.recording.simulated import record_simulated


def notes(last: int = 4) -> Heliograph:
    app = Heliograph("notes", reducers={"notes": lambda old, new: [*(old or []), new]})

    @app.agent(
        activate_on=["workflow:start", "state:notes:changed"],
        when=lambda state: len(state.get("notes", [])) < last,
        updates="notes",
    )
    async def writer(ctx: Context) -> str:
        return "note " * (1 + len(ctx.state.get("notes", [])))

    return app


def book(last: int = 4) -> Heliograph:
    """An application whose state has an object with a list and a counter."""
    app = Heliograph(
        "book", reducers={"book": lambda old, new: {**old, "pages": [*old["pages"], new], new: len(old["pages"])}}
    )

    @app.agent(
        activate_on=["workflow:start", "state:book:changed"],
        when=lambda state: len(state["book"]["pages"]) < last,
        updates="book",
    )
    async def writer(ctx: Context) -> str:
        return f"page {len(ctx.state['book']['pages'])}"

    return app


def changes(recording: Recording, key: str = "notes") -> list[Any]:
    return [signal.payload for signal in recording.signals if signal.name == f"state:{key}:changed"]


def with_whole_values(recording: Recording) -> Recording:
    """The recording as a version before decisions 0145 and 0180 wrote it. The state has one key that changes."""
    started: Any = recording.signals[0].payload
    value = started["state"].get("book")
    signals = []
    for signal in recording.signals:
        if changed_key(signal.name) is not None:
            value = changed_value(value, signal.payload)
            signal = replace(signal, payload={"value": value})  # noqa: PLW2901
        signals.append(signal)
    return Recording(recording.header, signals, recording.parts, recording.gaps, recording.untrusted)


@pytest.mark.proves("SIG-04")
@pytest.mark.parametrize("record", [True, False], ids=["recorded", "ledger"])
def test_replay_reproduces_a_list_that_was_recorded_by_its_items(record: bool) -> None:
    recording = record_simulated(notes(), 1, record=record, in_order=True)
    assert [each.get("from_index") for each in changes(recording)] == [None, 1, 2, 3]
    assert [len(each["value"]) for each in changes(recording)] == [1, 1, 1, 1]
    for each in (recording, with_whole_values(recording)):
        result = replay_recording(each, notes().workflow)
        assert result.is_same, [*result.lines()]
        assert result.reproduced > 0
    first = replay_recording(recording, notes(last=3).workflow).first
    assert first is not None


@pytest.mark.proves("SIG-02", "SIG-04")
def test_replay_and_player_reproduce_an_object_that_was_recorded_by_its_parts() -> None:
    recording = record_simulated(book(), 1, state={"book": {"pages": ["cover"], "title": "Tides"}}, in_order=True)
    assert changes(recording, "book") == [
        {"value": {f"/pages/{n}": f"page {n}", f"/page {n}": n}, "parts": True} for n in (1, 2, 3)
    ]
    for each in (recording, with_whole_values(recording)):
        result = replay_recording(each, book().workflow)
        assert result.is_same, [*result.lines()]
    timeline = Timeline()
    last = timeline.extend(recording.signals)
    ended: Any = recording.signals[-1].payload
    assert timeline.snapshot(last).state == ended["state"]
    assert replay_recording(recording, book(last=3).workflow).first is not None
