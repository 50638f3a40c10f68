"""The text of a commit: it comes back as it was, and repeats nothing that its row or the log of its run has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from heliograph.execution.packed_commit import (
    RECORDED,
    STARTED,
    EarlierFormat,
    as_jsonb,
    packed_claim,
    packed_text,
    unpacked_data,
    unpacked_text,
)
from heliograph.records import Cause, Claimed, InboxRow, Wait
from heliograph.types import JsonObject
from tests.recording.claims import MEMORY, RUN, TURN, claim

CAUSE: dict[str, Any] = {"id": "sig_run_a_1", "name": "note", "payload": {"n": 1}, "agent": None, "turn_id": None}
STARTED_MEMORY: JsonObject = {**MEMORY, RECORDED: STARTED}
FOREIGN = Cause("sig_run_a_1_1", "note", {"n": 1})  # of the run run_a_1


class Log:
    """The log of the run, with one signal."""

    def __init__(self, cause: JsonObject):
        self._causes = {CAUSE["id"]: cause}

    def cause(self, identifier: str) -> JsonObject:
        return self._causes[identifier]

    def start(self, run_id: str) -> tuple[JsonObject, JsonObject]:
        assert run_id == RUN
        return {"n": 1}, STARTED_MEMORY


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def unpacked(claimed: Claimed, cause: JsonObject) -> tuple[Claimed, Any]:
    """A claim after it was packed, and its project. cause: what the log has."""
    data = plain(packed_claim(claimed, "p", is_observed=False))
    found: Any = unpacked_data(data, RUN, TURN, Log(cause))
    return msgspec.convert(found["claimed"], Claimed), found["project"]


@pytest.mark.parametrize(
    "text", ["", '"`\\^', "a\x01b\x02\x00\x1f\x7f", "\u2713 \U0001f600", "\\u0001 `run_a` ^turn_b^", "1"]
)
def test_text_comes_back_as_it_was(text: str) -> None:
    found = unpacked_text(
        packed_text((7, 2, [[text, 1.5, {text: None}]], 3, "append", {"phase": text}, None, text)), TURN
    )
    assert found == {
        "part": "turn_a:7", "from": 2, "call": 3, "data": None, "gap": text,
        "entries": [[text, 1.5, {text: None}], ["call", 3, "append", {"phase": text}]],
    }  # fmt: skip


def test_text_has_no_characters_to_escape() -> None:
    assert packed_text(("start", 0, [], 1, "start_runs", {})) == "[`start`,0,[],1,`start_runs`,{}]"


def test_text_of_an_earlier_version_is_recognized() -> None:
    for text in (
        '{"part":"start"}',
        "{`part`:`start`}",
        "[`start`,0,[],1,`start_runs`,{`reaction`:{`version`:0}},[{},{}]]",
    ):
        with pytest.raises(EarlierFormat):
            unpacked_text(text, None)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"waits": [Wait("c1", "search", "tool", "resolved", 1, content={"a": 1}, opened_at=datetime(2026, 1, 1, tzinfo=UTC))],
         "defer_count": 2, "budget": {"tokens": 5}, "age_seconds": 1.5, "message_type": "ui_action"},
    ],
    ids=["usual", "with options"],
)  # fmt: skip
def test_claim_comes_back_as_it_was(options: dict[str, Any]) -> None:
    own = claim(msgspec.convert(CAUSE, Cause), **options)
    assert unpacked(own, CAUSE) == (own, "p")
    odd = msgspec.structs.replace(
        own, agent_id=f"{RUN}/ann/2", output_box_id="box_other", activation_id="sig_run_b_1", inbox=[InboxRow("turn", "m"), InboxRow("a", "b")]
    )  # fmt: skip
    assert unpacked(odd, CAUSE)[0] == odd


def test_cause_in_the_log_of_the_run_has_only_its_position() -> None:
    own, foreign = (
        packed_claim(claim(cause), "p", is_observed=True) for cause in (msgspec.convert(CAUSE, Cause), FOREIGN)
    )
    assert "note" not in str(own)
    assert FOREIGN in foreign, "another run has this signal, although its id begins like one of this run"
    assert unpacked(claim(FOREIGN), {}) == (claim(FOREIGN), "p")


@pytest.mark.parametrize(("version", "is_started"), [(1, True), (2, False)])
def test_claim_of_a_run_that_nothing_has_changed_since_its_start_repeats_neither_state_nor_memory(
    version: int, is_started: bool
) -> None:
    own = claim(msgspec.convert(CAUSE, Cause), depth=1)
    own = msgspec.structs.replace(own, run=msgspec.structs.replace(own.run, memory=STARTED_MEMORY, version=version))
    assert (STARTED_MEMORY not in packed_claim(own, "p", is_observed=False)) is is_started
    assert unpacked(own, CAUSE) == (own, "p")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"bb": 1, "a": {"é": 2, "zz": 3, "z": 4}}, '{"a":{"z":4,"zz":3,"é":2},"bb":1}'),
        ([1e22, -0.0, 1.5e-7, 1.0, 1e16, True, None, 12], "[10000000000000000000000,0.0,1.5e-7,1.0,10000000000000000,true,null,12]"),
    ],
    ids=["keys", "numbers"],
)  # fmt: skip
def test_state_of_a_start_has_the_form_in_which_the_database_returns_it(value: Any, text: str) -> None:
    assert msgspec.json.encode(as_jsonb(value)).decode() == text
