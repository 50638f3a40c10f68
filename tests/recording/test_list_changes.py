"""A list in the state is recorded by its new items, and replays reproduce them: also in recordings of versions that recorded whole lists."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph import Context, Heliograph
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


def changes(recording: Recording) -> list[Any]:
    return [signal.payload for signal in recording.signals if signal.name == "state:notes:changed"]


def whole_lists(recording: Recording) -> Recording:
    """The recording as a version before decision 0145 has written it."""
    value: Any = None
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
    for each in (recording, whole_lists(recording)):
        result = replay_recording(each, notes().workflow)
        assert result.is_same, [*result.lines()]
        assert result.reproduced > 0
    first = replay_recording(recording, notes(last=3).workflow).first
    assert first is not None
