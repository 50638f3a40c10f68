"""Questions to a log: causes, effects, soundness, and the printed tree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import NotFound
from heliograph.signals.model import Signal, Source
from heliograph.signals.trace import chain, children, draw_tree
from heliograph.testing.oracles.trace import check_trace
from heliograph.types import Json

AT = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


def signal(seq: int, name: str, parent: int | None, agent: str | None = None, payload: Json = None) -> Signal:
    """The signal at `seq`, ten milliseconds after the one before it; `parent` is a seq."""
    source = Source(agent, None if parent is None else f"sig_r_{parent}")
    return Signal(f"sig_r_{seq}", name, payload, AT + timedelta(milliseconds=10 * (seq - 1)), source, "run_r", seq)


EXAMPLE = [  # the flow of the specification
    signal(1, "workflow:start", None, payload={"state": {}}),
    signal(2, "agent:activated", 1, payload={"agent": "analyzer"}),
    signal(3, "harness:start", 2, "analyzer", {"model": "m"}),
    signal(4, "text:delta", 3, "analyzer", {"content": "The "}),
    signal(5, "text:delta", 3, "analyzer", {"content": "analysis"}),
    signal(6, "harness:end", 3, "analyzer", {"usage": {"inputTokens": 1, "outputTokens": 2}}),
    signal(7, "analysis:complete", 2, "analyzer", {"score": 0.5}),
    signal(8, "agent:activated", 7, payload={"agent": "reviewer"}),
    signal(9, "workflow:end", 1, payload={"state": {}, "metrics": {}}),
]


@pytest.mark.proves("SIG-61")
def test_chain_climbs_from_a_signal_to_the_root() -> None:
    names = [step.name for step in chain(EXAMPLE, "sig_r_8")]
    assert names == ["agent:activated", "analysis:complete", "agent:activated", "workflow:start"]


def test_chain_of_the_root_is_the_root() -> None:
    assert chain(EXAMPLE, "sig_r_1") == EXAMPLE[:1]


def test_chain_in_a_part_of_a_log_ends_where_the_part_begins() -> None:
    assert [step.seq for step in chain(EXAMPLE[6:], "sig_r_8")] == [8, 7]


def test_circle_of_parents_ends_the_chain() -> None:
    assert [step.seq for step in chain([signal(1, "a", 2), signal(2, "b", 1)], "sig_r_2")] == [2, 1]


def test_chain_of_an_unknown_signal_is_not_found() -> None:
    with pytest.raises(NotFound) as caught:
        chain(EXAMPLE, "sig_r_99")
    assert caught.value.code == "unknown_signal"
    assert "sig_r_99" in caught.value.message


def test_children_come_in_the_order_of_the_log() -> None:
    found = children(EXAMPLE)
    assert [child.seq for child in found["sig_r_1"]] == [2, 9]
    assert [child.seq for child in found["sig_r_3"]] == [4, 5, 6]
    assert "sig_r_9" not in found


@st.composite
def logs(draw: st.DrawFn) -> list[Signal]:
    """Sound logs: each signal after the first has a parent before it."""
    length = draw(st.integers(1, 12))
    rest = st.sampled_from(["a:b", "text:delta", "text:delta", "thinking:delta"])
    return [signal(1, "workflow:start", None)] + [
        signal(seq, draw(rest), draw(st.integers(1, seq - 1)), draw(st.sampled_from([None, "x", "y"])))
        for seq in range(2, length + 1)
    ]


@pytest.mark.proves("SIG-61")
@given(logs())
def test_every_chain_of_a_sound_log_ends_at_its_one_root(log: list[Signal]) -> None:
    assert check_trace(log) == []
    for each in log:
        steps = chain(log, each.id)
        assert steps[-1] is log[0]
        assert [step.seq for step in steps] == sorted((step.seq for step in steps), reverse=True)


@pytest.mark.proves("G-47")
@pytest.mark.parametrize(
    ("position", "change", "problem"),
    [
        (3, {"seq": 7}, "text:delta (sig_r_4) has seq 7 at position 4"),
        (3, {"run_id": "run_q"}, "text:delta (sig_r_4) belongs to run run_q, the first signal to run_r"),
        (4, {"id": "sig_r_4"}, "text:delta (sig_r_4) has the id of an earlier signal"),
        (
            4,
            {"source": Source(parent="sig_r_6")},
            "text:delta (sig_r_5) has the parent sig_r_6, which does not come before it",
        ),
        (
            4,
            {"source": Source(parent="sig_r_5")},
            "text:delta (sig_r_5) has the parent sig_r_5, which does not come before it",
        ),
        (8, {"source": None}, "workflow:end (sig_r_9) has no parent; sig_r_1 is the root"),
        (0, {"name": "workflow:begin"}, "workflow:begin (sig_r_1) is the root, not workflow:start"),
    ],
)
def test_one_flaw_in_a_log_is_named(position: int, change: dict[str, object], problem: str) -> None:
    log = list(EXAMPLE)
    log[position] = msgspec.structs.replace(log[position], **change)
    assert check_trace(log) == [problem]


def test_log_without_a_root_is_unsound() -> None:
    assert "the log has no root; it must begin with workflow:start" in check_trace([signal(1, "a", 9)])
    assert check_trace([]) == ["the log has no root; it must begin with workflow:start"]


def test_tree_draws_causes_above_their_effects() -> None:
    assert draw_tree(EXAMPLE) == [
        'workflow:start  {"state":{}}  +0 ms',
        '├─ agent:activated  {"agent":"analyzer"}  +10 ms',
        '│  ├─ harness:start  analyzer  {"model":"m"}  +20 ms',
        '│  │  ├─ text:delta ×2  analyzer  "The analysis"  +30…40 ms',
        '│  │  └─ harness:end  analyzer  {"usage":{"inputTokens":1,"outputTokens":2}}  +50 ms',
        '│  └─ analysis:complete  analyzer  {"score":0.5}  +60 ms',
        '│     └─ agent:activated  {"agent":"reviewer"}  +70 ms',
        '└─ workflow:end  {"state":{},"metrics":{}}  +80 ms',
    ]


def test_deltas_are_drawn_one_by_one_on_request() -> None:
    lines = draw_tree(EXAMPLE, show_payload_width=0, collapse_text=False)
    assert len(lines) == len(EXAMPLE)
    assert lines[3:5] == ["│  │  ├─ text:delta  analyzer  +30 ms", "│  │  ├─ text:delta  analyzer  +40 ms"]


def test_deltas_of_another_kind_or_agent_do_not_share_a_line() -> None:
    log = [
        signal(1, "workflow:start", None),
        signal(2, "text:delta", 1, "a", {"content": "1"}),
        signal(3, "thinking:delta", 1, "a", {"content": "2"}),
        signal(4, "thinking:delta", 1, "b", {"content": "3"}),
        signal(5, "thinking:delta", 1, "b", {"content": "4"}),
    ]
    assert [line.split("  ")[0] for line in draw_tree(log)[1:]] == [
        "├─ text:delta",
        "├─ thinking:delta",
        "└─ thinking:delta ×2",
    ]


@given(logs())
def test_each_signal_is_drawn_exactly_once(log: list[Signal]) -> None:
    assert len(draw_tree(log, collapse_text=False)) == len(log)
    counts = [line.partition("×")[2].split(" ")[0] for line in draw_tree(log)]
    assert sum(int(count or 1) for count in counts) == len(log)


def test_payload_is_truncated_to_the_width_and_printed_on_one_line() -> None:
    (line,) = draw_tree([signal(1, "a", None, payload="x" * 99)], show_payload_width=10)
    assert line == 'a  "xxxxxxxx…  +0 ms'
    (line,) = draw_tree([signal(1, "a", None, payload="one\ntwo\x1b[31m")])
    assert line == 'a  "one\\ntwo\\u001b[31m"  +0 ms'


def test_part_of_a_log_is_drawn_with_its_orphans_as_roots() -> None:
    assert [line.split("  ")[0] for line in draw_tree(EXAMPLE[6:])] == [
        "analysis:complete",
        "└─ agent:activated",
        "workflow:end",
    ]


def test_empty_log_draws_no_lines() -> None:
    assert draw_tree([]) == []


def test_chain_of_two_thousand_signals_is_drawn_without_recursion() -> None:
    log = [signal(1, "workflow:start", None)] + [signal(seq, "a", seq - 1) for seq in range(2, 2_001)]
    assert len(draw_tree(log)) == len(log)
    assert len(chain(log, log[-1].id)) == len(log)
