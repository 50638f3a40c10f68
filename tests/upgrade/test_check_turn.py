"""The check of open turns: unchanged code continues them, and each change of the code is named at its call."""

from __future__ import annotations

from copy import deepcopy
from io import StringIO
from typing import Any

import msgspec
import pytest

from heliograph import Heliograph
from heliograph.cli.upgrade import _Report
from heliograph.key_patterns import without_secrets
from heliograph.ledger.rows import OpenTurnRow
from tests.recording.topologies import Effects, topology
from tests.upgrade.changing import changing
from tests.upgrade.flights import checked, in_flight

STATE = {"text": "hello"}


@pytest.fixture(scope="module")
def turns() -> list[OpenTurnRow]:
    return in_flight(changing(), 1, 0.2, state=STATE)


def test_unchanged_code_continues_all_turns_without_any_effect(turns: list[OpenTurnRow]) -> None:
    done: list[str] = []
    assert sorted(turn.claimed.agent for turn in turns) == [
        "buyer", "child", "child", "clerk", "crowd", "guesser", "parent", "patient", "stubborn",
    ]  # fmt: skip
    assert all(turn.status == "suspended" and turn.claimed.waits for turn in turns)
    assert checked(changing(effects=done), turns) == []
    assert done == [], "a check calls no step, no tool and no model"


@pytest.mark.parametrize(
    ("change", "agent", "kind", "call"),
    [
        ("renamed step", "buyer", "call", (2, "c2", "price")),
        ("inserted", "buyer", "call", (1, "c1", "stamp")),
        ("arguments", "buyer", "arguments", (3, "c3", "approve")),
        ("ends early", "buyer", "missing", (3, "c3", "approve")),
        ("raises", "buyer", "error", (2, "c2", "price")),
        ("hangs", "patient", "missing", (1, "c1", "timer")),
        ("task", "parent", "arguments", (1, "c1", "child")),
        ("fewer tasks", "crowd", "missing", None),
        ("no retry", "stubborn", "missing", (2, "c1-pause-1", "timer")),
        ("renamed tool", "clerk", "tool", (2, "m1-1", "lookup")),
    ],
)  # fmt: skip
@pytest.mark.proves("P-15")
def test_change_of_the_code_is_named_at_its_call(
    turns: list[OpenTurnRow], change: str, agent: str, kind: str, call: tuple[int, str, str] | None
) -> None:
    [found] = checked(changing(change), turns)
    assert (found.agent, found.kind) == (agent, kind), list(found.lines())
    assert found.call is not None
    assert call in (None, (found.call.index, found.call.call_id, found.call.name)), list(found.lines())
    [turn] = [turn for turn in turns if turn.claimed.agent == agent]
    assert (found.run_id, found.turn_id) == (turn.claimed.run_id, turn.claimed.turn_id)
    assert found.next_step
    assert found.next_step in list(found.lines())[-1]
    assert msgspec.json.decode(msgspec.json.encode(found.as_json()))["kind"] == kind


def test_agent_that_is_gone_is_named_for_each_of_its_turns_and_at_the_delegation(turns: list[OpenTurnRow]) -> None:
    found = checked(changing("renamed agent"), turns)
    assert sorted((each.agent, each.kind) for each in found) == [
        ("child", "agent"),
        ("child", "agent"),
        ("parent", "call"),
    ]


def test_state_that_the_new_model_rejects_is_named_for_every_turn(turns: list[OpenTurnRow]) -> None:
    found = checked(changing("state"), turns)
    assert {each.kind for each in found} == {"state"}
    assert len(found) == len(turns)
    assert "customer" in found[0].message


def test_other_approval_rule_is_no_divergence(turns: list[OpenTurnRow]) -> None:
    assert checked(changing("no approval"), turns) == []


def test_other_prompt_is_noted_at_the_first_reply_to_the_old_one(turns: list[OpenTurnRow]) -> None:
    [found] = checked(changing("prompt"), turns)
    assert (found.kind, found.agent, found.is_note) == ("prompt", "clerk", True)
    assert found.call is not None
    assert (found.call.call_id, found.message) == ("m1", "the prompt changed since this reply was recorded")
    [turn] = [deepcopy(turn) for turn in turns if turn.claimed.agent == "clerk"]
    for wait in turn.claimed.waits:
        if wait.tool == "model":
            wait.content["output"].pop("marks")
    assert checked(changing("prompt"), [turn]) == [], "replies of earlier versions have no marks"


def test_count_of_notes_names_everything_that_a_note_may_name(turns: list[OpenTurnRow]) -> None:
    printed = StringIO()
    report = _Report(printed, "shop", as_json=False)
    [found] = checked(changing("prompt"), turns)
    report.add(found)
    report.end()
    assert report.diverged == 0
    assert printed.getvalue().endswith("; in 1, a recorded reply answers another prompt, system text or tools\n")


def test_both_sides_have_no_secrets(turns: list[OpenTurnRow]) -> None:
    [found] = checked(changing("arguments"), turns)
    assert (found.recorded["arguments"]["price"], found.now["arguments"]["price"]) == (40, 41)
    assert "at /arguments/price" in found.message
    key = "sk-proj-aaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    damaged = [with_argument(turn, key) for turn in turns if turn.claimed.agent == "buyer"]
    [found] = checked(changing(), damaged)
    assert found.kind == "arguments"
    assert key not in str(found.as_json())
    assert without_secrets(key) in str(found.as_json())


def test_lines_have_no_control_character_of_an_argument(turns: list[OpenTurnRow]) -> None:
    [turn] = [turn for turn in turns if turn.claimed.agent == "buyer"]
    [found] = checked(changing(), [with_argument(turn, "\x9b2J\u2028 sent")])
    assert "\\x9b2J\\u2028 sent" in "".join(found.lines())
    assert all(text.isprintable() for text in found.lines())


def with_argument(turn: OpenTurnRow, value: str) -> OpenTurnRow:
    requests = {**turn.requests, "c3": {**turn.requests["c3"], "key": value}}
    return msgspec.structs.replace(turn, requests=requests)


def test_starred_secret_of_a_recorded_argument_equals_every_text(turns: list[OpenTurnRow]) -> None:
    [turn] = [turn for turn in turns if turn.claimed.agent == "buyer"]
    requests = {"c3": {**turn.requests["c3"], "question": "***"}}
    assert checked(changing(), [msgspec.structs.replace(turn, requests=requests)]) == []


def test_recorded_result_that_the_new_schema_rejects_is_named(turns: list[OpenTurnRow]) -> None:
    [turn] = [turn for turn in turns if turn.claimed.agent == "guesser"]
    done: dict[str, Any] = {
        "state": "resolved",
        "status": "success",
        "content": {"output": "seven"},
        "resolved_position": 1,
    }
    waits = [msgspec.structs.replace(wait, **done) for wait in turn.claimed.waits]
    resolved = msgspec.structs.replace(turn, claimed=msgspec.structs.replace(turn.claimed, waits=waits))
    assert checked(changing(), [resolved]) == []
    [found] = checked(changing("schema"), [resolved])
    assert (found.kind, found.recorded) == ("result", "seven")


def test_call_of_a_run_before_a_deferral_may_be_absent_unless_it_is_open(turns: list[OpenTurnRow]) -> None:
    [turn] = [turn for turn in turns if turn.claimed.agent == "buyer"]
    deferred = msgspec.structs.replace(turn.claimed, defer_count=1)
    [found] = checked(changing("raises"), [msgspec.structs.replace(turn, claimed=deferred)])
    assert found.call is not None
    assert found.call.call_id == "c3"
    without = msgspec.structs.replace(deferred, waits=turn.claimed.waits[:2])
    assert checked(changing("raises"), [msgspec.structs.replace(turn, claimed=without)]) == []


@pytest.mark.parametrize("seed", [3, 7])
def test_generated_turns_in_flight_continue_with_the_same_code(seed: int) -> None:
    assert_continues(seed, 0.3)


@pytest.mark.parametrize(("change", "kind", "tool"), [("step", "call", "s0"), ("prompt", "prompt", "model")])
def test_change_of_a_generated_application_is_named_for_the_turns_that_it_reaches(
    change: str, kind: str, tool: str
) -> None:
    reached = 0
    for seed in (22, 35):
        turns = in_flight(topology(seed), seed, 0.02)
        found = checked(topology(seed, change=change), turns)
        expected = {turn.claimed.turn_id for turn in turns
                    if any(wait.tool == tool and (tool != "model" or wait.status) for wait in turn.claimed.waits)}  # fmt: skip
        assert {(each.turn_id, each.kind) for each in found} == {(turn_id, kind) for turn_id in expected}, seed
        reached += len(expected)
    assert reached > 1


@pytest.mark.more
def test_more_generated_turns_in_flight_continue_with_the_same_code() -> None:
    count = sum(assert_continues(seed, until, crashes=crashes)
                for seed in range(20, 26) for until, crashes in ((0.05, False), (2.0, True)))  # fmt: skip
    assert count > 10


@pytest.mark.long
def test_many_generated_turns_in_flight_continue_with_the_same_code() -> None:
    count = sum(assert_continues(seed, until, crashes=crashes)
                for seed in range(100, 200) for until in (0.02, 0.1, 0.5, 2.0) for crashes in (False, True))  # fmt: skip
    assert count > 1000


def assert_continues(seed: int, until: float, *, crashes: bool = False) -> int:
    counted = Effects()
    turns = in_flight(topology(seed), seed, until, faults=crashes)
    app: Heliograph = topology(seed, counted)
    assert checked(app, turns) == [], (seed, until, crashes)
    assert counted.count == 0, "a check calls no step, no tool and no model"
    return sum(bool(turn.claimed.waits) for turn in turns)
