from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph import Signal
from heliograph.errors import InvalidInput, NotFound
from heliograph.run_result import RunResult
from heliograph.signals import Source
from heliograph.testing import SignalMatch, caused_by, contains, eventually, in_order, never, signal

AT = datetime(2026, 1, 1, tzinfo=UTC)


def log(*entries: tuple[str, Any, str | None, int | None]) -> list[Signal]:
    """A log of these names, payloads, agents and positions of parents."""
    return [
        Signal(f"sig_r_{n}", name, payload, AT, Source(agent, None if parent is None else f"sig_r_{parent}"), "r", n)
        for n, (name, payload, agent, parent) in enumerate(entries, 1)
    ]


LOG = log(
    ("workflow:start", {"state": {}}, None, None),
    ("agent:activated", {}, "counter", 1),
    ("words:counted", {"n": 3, "by": {"line": [1, 2]}}, "counter", 2),
    ("agent:activated", {}, "editor", 3),
    ("verdict:found", {"text": "fine"}, "editor", 4),
    ("workflow:end", {"outcome": "success"}, None, 5),
)


def message_of(assertion: Any, *args: Any) -> str:
    with pytest.raises(AssertionError) as failed:
        assertion(*args)
    return str(failed.value)


def test_contains_returns_the_first_match_of_name_agent_payload_and_predicate() -> None:
    assert contains(LOG, "agent:*").seq == 2
    assert contains(LOG, signal("agent:activated", agent="editor")).seq == 4
    assert contains(LOG, signal("words:**", payload={"by": {"line": [1, lambda n: n > 1]}})).seq == 3
    assert contains(LOG, signal("**", where=lambda each: each.seq == 5)).name == "verdict:found"
    assert contains(RunResult("r", "success", {}, signals=LOG), "workflow:end").seq == 6


def test_contains_shows_the_nearest_miss_with_each_difference() -> None:
    wanted = signal("words:counted", agent="editor", payload={"n": 4, "by": {"line": [1, 3]}, "new": True})
    assert message_of(contains, LOG, wanted) == (
        'no signal matches words:counted by editor with payload {"n":4,"by":{"line":[1,3]},"new":true}\n'
        "  nearest miss: #3 words:counted by counter\n"
        "    agent: expected editor, was counter\n"
        "    payload /n: expected 4, was 3\n"
        "    payload /by/line/1: expected 3, was 2\n"
        "    payload /new: missing, expected true\n"
        "  the run has 6 signals: workflow:start, agent:activated ×2, words:counted, verdict:found, workflow:end"
    )


@pytest.mark.proves("P-06")
def test_misspelled_name_has_the_right_one_as_its_nearest_miss() -> None:
    assert "nearest miss: #3 words:counted" in message_of(contains, LOG, "word:counted")


def test_predicate_that_rejects_or_raises_is_named_with_its_value() -> None:
    def is_even(n: int) -> bool:
        return n % 2 == 0

    def is_long(n: Any) -> bool:
        return len(n) > 3

    assert "payload /n: is_even does not accept 3" in message_of(
        contains, LOG, signal("words:counted", payload={"n": is_even})
    )
    assert "payload /n: is_long raised TypeError: object of type 'int' has no len() for 3" in message_of(
        contains, LOG, signal("words:counted", payload={"n": is_long})
    )
    assert 'where: the lambda does not accept the signal with payload {"n":3' in message_of(
        contains, LOG, signal("words:counted", where=lambda _: False)
    )


def test_true_is_not_one() -> None:
    assert not signal("n", payload={"n": 1}).matches(log(("n", {"n": True}, None, None))[0])
    assert signal("n", payload={"n": 1}).matches(log(("n", {"n": 1.0}, None, None))[0])


def test_in_order_returns_one_signal_for_each_match() -> None:
    found = in_order(LOG, "workflow:start", "agent:activated", "agent:activated", "workflow:end")
    assert [each.seq for each in found] == [1, 2, 4, 6]


def test_in_order_names_a_signal_that_came_too_early() -> None:
    assert message_of(in_order, LOG, "verdict:found", "words:counted") == (
        "signal 2 of 2 is missing: no signal after #5 verdict:found by editor matches words:counted\n"
        "  it came too early: #3 words:counted by counter\n"
        "  found before: #5 verdict:found by editor\n"
        "  the run has 6 signals: workflow:start, agent:activated ×2, words:counted, verdict:found, workflow:end"
    )


def test_in_order_shows_the_nearest_miss_among_the_signals_that_are_left() -> None:
    text = message_of(in_order, LOG, "words:counted", signal("agent:activated", agent="critic"))
    assert "nearest miss: #4 agent:activated by editor\n    agent: expected critic, was editor" in text


def test_never_shows_the_signal_and_how_it_came_about() -> None:
    never(LOG, "agent:failed")
    assert message_of(never, LOG, "verdict:*") == (
        "1 signal of 6 should not be there: no signal may match verdict:*\n"
        '  #5 verdict:found by editor {"text":"fine"}\n'
        "  the first one was caused by\n"
        "    #4 agent:activated by editor {}\n"
        '    #3 words:counted by counter {"n":3,"by":{"line":[1,2]}}\n'
        "    #2 agent:activated by counter {}\n"
        '    #1 workflow:start {"state":{}}'
    )
    assert message_of(never, LOG, "workflow:start").endswith("    nothing: it is the root")


def test_caused_by_returns_the_chain_up_to_the_cause() -> None:
    assert [each.seq for each in caused_by(LOG, "verdict:found", "words:*")] == [5, 4, 3]


def test_caused_by_shows_the_causes_and_the_nearest_of_them() -> None:
    text = message_of(caused_by, LOG, "verdict:found", signal("words:counted", payload={"n": 9}))
    assert text.startswith("#5 verdict:found by editor was not caused by words:counted")
    assert text.endswith("  nearest miss: #3 words:counted by counter\n    payload /n: expected 9, was 3")
    assert "no signal matches the effect gone:*" in message_of(caused_by, LOG, "gone:*", "words:*")


@pytest.mark.proves("P-07")
def test_each_effect_needs_a_cause() -> None:
    text = message_of(caused_by, LOG, "agent:activated", "words:counted")
    assert text.startswith(
        "#2 agent:activated by counter, one of 2 signals that match agent:activated, was not caused by words:counted; it was caused by\n"
    )
    two = log(("a", None, None, None), ("b", None, None, 1), ("b", None, None, None))
    assert message_of(caused_by, two, "b", "a").startswith("#3 b, one of 2 signals that match b, was not caused by a")


def test_long_causes_and_many_names_are_cut() -> None:
    many = log(*((f"n{n}:x", {}, None, n or None) for n in range(30)))
    text = message_of(never, many, "n29:x")
    assert "    ... and 21 more, up to #1 n0:x" in text
    assert "and 18 other names" in message_of(contains, many, "other")


def test_empty_run_has_a_message_of_its_own() -> None:
    assert message_of(contains, [], "a:b") == "no signal matches a:b\n  the run has no signals"


def test_message_has_the_first_failure_of_the_run() -> None:
    failed = {"agent": "counter", "outcome": "failed", "error": {"code": "NO_MODEL", "message": "there is no model"}}
    signals = log(("workflow:start", {}, None, None), ("agent:failed", failed, "counter", 1))
    assert message_of(contains, signals, "words:counted").endswith(
        "\n  the first failure is #2 agent:failed by counter: there is no model"
    )


def test_nearest_miss_has_its_error() -> None:
    result = {"status": "failed", "error": {"code": "TOOL_ERROR", "message": "the bank is closed"}}
    signals = log(("tool:result", result, "clerk", None))
    assert (
        '    payload /status: expected "success", was "failed"\n'
        '    its error is {"code":"TOOL_ERROR","message":"the bank is closed"}\n'
    ) in message_of(contains, signals, signal("tool:result", payload={"status": "success"}))


@pytest.mark.parametrize("given", ["run_1", None, ["sig_1"]])
def test_value_that_is_no_run_is_rejected(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"must be a result or a list of signals, such as `await app\.signals"):
        contains(given, "a")


@pytest.mark.parametrize("given", [None, 3, ["a"]])
def test_expected_signal_of_another_type_is_rejected(given: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a pattern or the result of signal"):
        contains(LOG, given)


def test_invalid_pattern_is_rejected() -> None:
    with pytest.raises(InvalidInput) as rejected:
        never(LOG, "a::b")
    assert rejected.value.code == "invalid_pattern"


def test_messages_of_long_logs_and_large_payloads_are_bounded() -> None:
    signals = log(*(("item:read", {f"k{key}": n for key in range(100)}, "reader", n or None) for n in range(2_000)))
    wanted = signal("item:read", payload={f"k{key}": -1 for key in range(100)})
    lines = message_of(contains, signals, wanted).splitlines()
    assert len(lines) == 12
    assert lines[1:3] == ["  nearest miss: #1 item:read by reader", "    payload /k0: expected -1, was 0"]
    assert lines[10:] == ["    ... and 92 more differences", "  the run has 2000 signals: item:read ×2000"]
    for message in (message_of(never, signals, "item:*"), message_of(caused_by, signals, "item:read", "nothing")):
        assert len(message) < 5_000


def test_text_of_long_values_begins_near_their_difference() -> None:
    [text, items] = log(("a", "x" * 5_000 + "left", None, None), ("b", [1, 2, 3], None, None))
    assert signal("a", payload="x" * 5_000 + "right").differences(text) == [
        'payload: differs at character 5001: expected "…xxxxxxxxxxxxxxxxxxxxright", was "…xxxxxxxxxxxxxxxxxxxxleft"'
    ]
    assert signal("b", payload=[1, 2]).differences(items) == ["payload: expected 2 elements, was 3: [1,2] and [1,2,3]"]


def test_causes_of_many_effects_are_searched_once() -> None:
    asked: list[int] = []
    signals = log(*(("step", None, None, n or None) for n in range(3_000)))

    def is_first(each: Signal) -> bool:
        asked.append(each.seq)
        return each.seq == 1

    first = signal("step", where=is_first)
    found = caused_by(signals[1:] + signals[:1], signal("step", where=lambda each: each.seq > 1), first)
    assert [each.seq for each in found] == [2, 1]
    assert len(asked) == 2_999


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["a:b", "a:c", "b", "a:b:c"])
MATCHES = st.builds(lambda name, payload: signal(name, payload=payload), NAMES, st.none() | JSON)


@given(st.lists(st.tuples(NAMES, JSON), max_size=5), MATCHES)
def test_assertions_agree_with_each_other(entries: Sequence[tuple[str, Any]], match: SignalMatch) -> None:
    signals = log(*((name, payload, None, n or None) for n, (name, payload) in enumerate(entries)))
    is_there = any(match.matches(each) for each in signals)
    messages = [_failure(assertion, signals, match) for assertion in (contains, in_order, never)]
    assert [message is None for message in messages] == [is_there, is_there, not is_there]
    for message in messages[:2]:
        assert message is None or ("nearest miss: #" in message) == bool(signals)


def _failure(assertion: Any, signals: list[Signal], match: SignalMatch) -> str | None:
    try:
        assertion(signals, match)
    except AssertionError as failure:
        return str(failure)
    return None


@given(JSON)
def test_payload_matches_itself(payload: Any) -> None:
    recorded = log(("a", payload, None, None))[0]
    assert signal("a", payload=payload).differences(recorded) == []


class LateRun:
    """A client of a run that begins after some looks."""

    def __init__(self, looks: int):
        self.client: Any = self
        self.left = looks

    async def follow(self, run_id: str) -> AsyncIterator[Signal]:
        self.left -= 1
        if self.left > 0:
            raise NotFound(f"no run {run_id}", code="unknown_run")
        for each in LOG:
            yield each


async def test_eventually_waits_for_the_beginning_of_a_run() -> None:
    assert (await eventually(LateRun(3), "r", "verdict:found")).seq == 5
    with pytest.raises(
        AssertionError, match=r"run r did not begin and had no signal that matches verdict:found within 0.02 s"
    ):
        await eventually(LateRun(1000), "r", "verdict:found", within_seconds=0.02)
    with pytest.raises(AssertionError, match="run r ended without a signal that matches nothing:found"):
        await eventually(LateRun(3), "r", "nothing:found")
