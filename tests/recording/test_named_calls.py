"""A call that a replay makes, or no longer makes, has the name that the code gives it; after a dead worker, it is a gap."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Heliograph, tool
from heliograph.models import ScriptedModel, ToolCall
from heliograph.recording.replay_recording import replay_recording
from tests.recording.simulated import record_simulated


def till(approved_above: int) -> Heliograph:
    app = Heliograph("till")

    @tool(approval=lambda call: call["amount"] > approved_above, effect="idempotent")
    def refund(amount: int) -> str:
        return f"{amount} paid back"

    model = ScriptedModel([ToolCall("1", "refund", {"amount": 400}), "Done."], per_turn=True)
    app.prompt_agent("clerk", "Refund", model=model, tools=[refund], activate_on=["workflow:start"])
    return app


@pytest.mark.parametrize(("record", "above", "message"), [
    (True, 1000, "the recording has no start of step refund (m1-1)"),
    (False, 1000, "the code no longer makes an approval by refund (m1-1-approval)"),
])  # fmt: skip
def test_approval_that_is_no_longer_requested_is_named(record: bool, above: int, message: str) -> None:
    first = replay_recording(record_simulated(till(100), 1, record=record), till(above).workflow).first
    assert first is not None
    assert first.message == message


@pytest.mark.parametrize(("record", "message"), [
    (True, "the recording has no suspension for an approval by refund (m1-1-approval)"),
    (False, "the ledger has no record of an approval by refund (m1-1-approval)"),
])  # fmt: skip
def test_approval_that_is_requested_now_is_named(record: bool, message: str) -> None:
    first = replay_recording(record_simulated(till(1000), 1, record=record), till(100).workflow).first
    assert first is not None
    assert first.message == message


def test_call_that_is_no_longer_made_after_a_dead_worker_is_a_gap() -> None:
    recording = record_simulated(till(100), 3, record=False, faults=True)
    claims: list[Any] = [part.data["claimed"] for part in recording.parts if "claimed" in part.data]
    assert [claimed["attempts"] for claimed in claims] == [1]
    assert replay_recording(recording, till(100).workflow).gaps[1:] == []
    result = replay_recording(recording, till(1000).workflow)
    assert result.is_same
    assert result.gaps[-1].reason.endswith("the code no longer makes an approval by refund (m1-1-approval)")
    assert "died" in result.gaps[-1].reason
