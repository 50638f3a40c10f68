"""A single pattern: examples, a naive reference, and the cost of a match."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph import Heliograph
from heliograph.adapters import Metrics
from heliograph.errors import InvalidInput, Rejected
from heliograph.signals.pattern import check_agent_pattern, compile_pattern
from heliograph.signals.pattern_warnings import warn_unmatchable, warn_unsubscribed

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "signals.md"

# Few letters, so that patterns and names often meet.
segment = st.sampled_from(["a", "b", "ab"])
patterns = (
    st.lists(segment | st.sampled_from(["*", "**"]), min_size=1, max_size=7)
    .filter(lambda segments: segments.count("**") <= 2)
    .map(":".join)
)
names = st.lists(segment, min_size=1, max_size=8).map(":".join)


def matches_by_the_book(pattern: list[str], name: list[str]) -> bool:
    """The definition of G-41, with no thought for speed."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(matches_by_the_book(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and pattern[0] in ("*", name[0]) and matches_by_the_book(pattern[1:], name[1:])


@pytest.mark.proves("G-41")
@given(patterns, names)
@example("**", "a")
@example("a:**:b:**:a", "a:b:a")
@example("**:a:*:b:**", "a:a:b:a:b")
def test_matcher_agrees_with_the_definition(pattern: str, name: str) -> None:
    assert compile_pattern(pattern).matches(name) == matches_by_the_book(pattern.split(":"), name.split(":"))


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        pytest.param("agent:*", "agent:activated", True, marks=pytest.mark.proves("SIG-50")),
        pytest.param("agent:*", "agent:a:b", False, marks=pytest.mark.proves("SIG-50")),
        pytest.param("agent:*", "agent", False, marks=pytest.mark.proves("SIG-50")),
        pytest.param("harness:**", "harness:start", True, marks=pytest.mark.proves("SIG-51", "SIG-43")),
        pytest.param("harness:**", "harness:a:b", True, marks=pytest.mark.proves("SIG-51")),
        pytest.param("harness:**", "harness", True, marks=pytest.mark.proves("G-41")),
        pytest.param("harness:**", "harnesses:start", False, marks=pytest.mark.proves("SIG-51")),
        pytest.param("x:**:y", "x:y", True, marks=pytest.mark.proves("G-41")),
        pytest.param("x:**:y", "x:a:b:y", True, marks=pytest.mark.proves("G-41")),
        pytest.param("*:complete", "analysis:complete", True, marks=pytest.mark.proves("SIG-52", "G-40")),
        pytest.param("*:complete", "complete", False, marks=pytest.mark.proves("SIG-52", "G-40")),
        pytest.param("*:complete", "a:b:complete", False, marks=pytest.mark.proves("SIG-52", "G-40")),
        pytest.param("v1.*", "v1.x", None, marks=pytest.mark.proves("G-41")),
        pytest.param("v1.x", "v1.x", True, marks=pytest.mark.proves("G-41")),
        pytest.param("v1.x", "v1ax", False, marks=pytest.mark.proves("G-41")),
        pytest.param("workflow:start", "workflow:start", True, marks=pytest.mark.proves("SIG-41")),
        pytest.param("state:analysis:changed", "state:analysis:changed", True, marks=pytest.mark.proves("SIG-44")),
        pytest.param("state:*:changed", "state:score:changed", True, marks=pytest.mark.proves("SIG-44")),
        pytest.param("A:b", "a:b", False),
    ],
)
def test_pattern_matches_its_documented_examples(pattern: str, name: str, expected: bool | None) -> None:
    if expected is None:  # part of a segment is no wildcard, so there is nothing to match with
        with pytest.raises(InvalidInput):
            compile_pattern(pattern)
    else:
        assert compile_pattern(pattern).matches(name) is expected


@pytest.mark.proves("G-41")
@pytest.mark.parametrize("name", ["", ":", "agent:", ":agent", "agent::a"])
@pytest.mark.parametrize("pattern", ["*", "**", "agent:*", "agent:**", "**:agent", "agent:*:a", "*:*"])
def test_no_wildcard_takes_an_empty_segment(pattern: str, name: str) -> None:
    assert not compile_pattern(pattern).matches(name)


def test_page_on_patterns_matches_the_implementation() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Patterns")[2].partition("## ")[0]
    rows = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) >= 5
    for pattern, yes, no in rows:
        compiled = compile_pattern(pattern.strip(" `"))
        assert all(compiled.matches(name.strip(" `")) for name in yes.split(","))
        assert not any(compiled.matches(name.strip(" `")) for name in no.split(","))


@pytest.mark.parametrize(("text", "is_exact"), [("a:b", True), ("ready", True), ("a:*", False), ("**", False)])
def test_pattern_has_its_text_and_reports_whether_it_is_a_plain_name(text: str, is_exact: bool) -> None:
    pattern = compile_pattern(text)
    assert (pattern.text, pattern.is_exact) == (text, is_exact)


def test_equal_patterns_are_compiled_once() -> None:
    assert compile_pattern("once:*") is compile_pattern("once:" + "*")


class Counted(str):
    """A segment that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__ne__(self, other)

    __hash__ = str.__hash__


def comparisons(pattern: str, segments: list[str]) -> int:
    Counted.comparisons = 0
    compile_pattern(pattern).matches_segments([Counted(segment) for segment in segments])
    return Counted.comparisons


@pytest.mark.proves("G-41")
@pytest.mark.parametrize(
    ("pattern", "segments"),
    [
        ("**:x:**:y", ["a"] * 9_998 + ["x", "y"]),
        ("**:x:**:y", ["x"] * 10_000),
        ("**:a:a:a:a:b:**", ["a"] * 10_000),
        ("**:a:*:*:b:**", ["a"] * 10_000),
        ("*:**:*:a:**:*", ["b"] * 10_000),
        ("a:**", ["a"] * 10_000),
    ],
)
def test_name_of_ten_thousand_segments_is_compared_in_linear_steps(pattern: str, segments: list[str]) -> None:
    assert 0 < comparisons(pattern, segments) <= len(segments) * (len(pattern.split(":")) + 1)


@pytest.mark.parametrize("text", ["agent:**", "**:complete", "*", "*:*", "**:*:done"])
def test_agent_may_subscribe_to_a_pattern_that_excludes_some_names(text: str) -> None:
    assert check_agent_pattern(text).text == text


@pytest.mark.parametrize("text", ["**", "**:**", "**:*", "*:**"])
def test_agent_may_not_subscribe_to_every_name(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        check_agent_pattern(text)
    assert caught.value.code == "pattern_too_broad"


def test_pattern_without_a_matching_name_causes_a_warning_with_the_emitted_names() -> None:
    warnings = warn_unmatchable(["review:*", "revew:*", compile_pattern("x")], ["review:done", "analysis:complete"])
    assert warnings == [
        "pattern_matches_nothing: 'revew:*' matches no signal; did you mean review:done? (emitted: analysis:complete, review:done)",
        "pattern_matches_nothing: 'x' matches no signal (emitted: analysis:complete, review:done)",
    ]


def test_warning_lists_twenty_emitted_names_and_counts_the_rest() -> None:
    (warning,) = warn_unmatchable(["x"], [f"n:{number:02}" for number in range(23)])
    assert warning.endswith("n:19 and 3 more)")


def test_warning_names_the_nearest_name_first_and_lists_no_names_of_the_runtime() -> None:
    runtime = [f"agent:{name}" for name in ("activated", "completed", "failed", "skipped")]
    assert warn_unmatchable(["words:countd", "agent:complete"], ["words:counted"], runtime) == [
        "pattern_matches_nothing: 'words:countd' matches no signal; did you mean words:counted? (emitted: words:counted)",
        "pattern_matches_nothing: 'agent:complete' matches no signal; did you mean agent:completed? (emitted: words:counted)",
    ]


def test_emitted_name_without_a_matching_pattern_causes_a_warning_with_the_nearest() -> None:
    emitted = [("counter", "words:counted"), ("counter", "zzz"), ("writer", "draft:ready")]
    assert warn_unsubscribed(emitted, ["words:countd", "draft:*"]) == [
        "nothing_subscribes: agent counter emits 'words:counted', and no agent subscribes to it; did you mean words:countd?",
        "nothing_subscribes: agent counter emits 'zzz', and no agent subscribes to it",
    ]


def test_signal_for_a_subscriber_outside_of_runs_causes_no_warning() -> None:
    emitted = [("counter", "words:counted"), ("counter", "zzz")]
    [warning] = warn_unsubscribed(emitted, [], ["words:*"])
    assert "zzz" in warning
    app = Heliograph("shop")
    app.agent(name="clerk", activate_on=["workflow:start"], emits=["order:placed", "order:lost"])(lambda _: None)
    app.on_signal("order:placed", name="bills")(lambda _: None)
    app.send_signals("**", to=Metrics())
    assert [w for w in app.workflow.warnings if w.startswith("nothing_subscribes")] == [
        "nothing_subscribes: agent clerk emits 'order:lost', and no agent subscribes to it"
    ]


def test_warning_without_emitted_names_contains_none() -> None:
    (warning,) = warn_unmatchable(["x"], [])
    assert warning.endswith("(emitted: none)")
