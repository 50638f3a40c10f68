"""Properties of every run, for any order and outcome of parallel turns."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.reactive.workflow import Workflow
from heliograph.testing.oracles.standard_payloads import check_standard
from heliograph.testing.oracles.trace import check_trace
from tests.rules.reactive_kit import START, Run, Turn, agent, until_ended, workflow

NAMES = ("a", "b", "c", "d")
WORDS = tuple(f"{name}:done" for name in NAMES)
PATTERNS = st.sampled_from([*START, *WORDS, "*:done", "agent:completed", "agent:failed", "agent:*", "state:*:changed",
                            "text:delta"])  # fmt: skip


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Up to four agents that listen to each other, some with guards, joins and updates."""
    agents = [
        agent(
            name,
            draw(st.lists(PATTERNS, min_size=1, max_size=3)),
            activate_when_all=draw(st.lists(st.sampled_from(WORDS), max_size=2, unique=True)),
            emits=[f"{name}:done"] if draw(st.booleans()) else [],
            when=draw(st.sampled_from([None, None, lambda _: False, lambda state: state["n"] < 3, lambda _: 1 / 0])),
            updates="n" if draw(st.booleans()) else (),
        )
        for name in NAMES[: draw(st.integers(1, 4))]
    ]
    goal = draw(st.sampled_from([None, None, lambda state: state["n"] > 4]))
    return workflow(*agents, reducers={"n": lambda old, new: old + new}, end_when=goal,
                    max_activations=draw(st.integers(1, 25)))  # fmt: skip


def _finish(draw: Any) -> Any:
    """End a turn in a way that is drawn: well, badly, by the kernel, from an old view, with text on the way."""

    def finish(run: Run, turn: Turn) -> None:
        way = draw(st.sampled_from(["well", "well", "well", "failed", "kernel", "old view", "text"]))
        if run.view.status == "terminating":
            run.end(turn, outcome="canceled")
        elif way == "kernel":
            run.end_by_kernel(turn)
        elif way == "text":
            run.stream(turn, "text:delta", {"content": "x", "offset": 0})
        elif way == "old view" and len(run.open) > 1:
            others = [other for other in run.open.values() if other.agent != turn.agent]
            before = run.view
            if others:
                run.end(others[0], 1)
                assert run.end(turn, 1, view=before) is None
        else:
            run.end(turn, 1, outcome="failed" if way == "failed" else "success")
        if run.pending and draw(st.booleans()):
            run.pay()

    return finish


@pytest.mark.proves("SIG-03", "SIG-21", "SIG-61", "K26")
@given(workflows(), st.data())
def test_every_run_ends_once_with_a_sound_trace_and_correct_counts(definition: Workflow, data: st.DataObject) -> None:
    run = Run(definition, {"n": 0})
    while run.view.status != "ended":
        until_ended(run, lambda turns: data.draw(st.sampled_from(turns)), _finish(data.draw))
    assert check_trace(run.signals) == []
    assert [signal.name for signal in run.signals if signal.parent is None] == ["workflow:start"]
    assert run.names().count("workflow:end") == 1
    assert run.names()[-1] == "workflow:end"
    for signal in run.signals:
        assert check_standard(signal.name, signal.payload) == []
    metrics = run.end_payload["metrics"]
    assert metrics["activations"] == len(run.named("agent:activated")) <= definition.max_activations
    assert metrics["turns"] == metrics["activations"]
    assert metrics["failed"] == len([s for s in run.named("agent:failed") if "canceled" not in str(s.payload)])
    assert metrics["skipped"] == len(run.named("agent:skipped"))


@pytest.mark.proves("SIG-02")
@given(workflows(), st.data())
def test_state_equals_the_replay_of_its_signals(definition: Workflow, data: st.DataObject) -> None:
    run = Run(definition, {"n": 0})
    while run.view.status != "ended":
        until_ended(run, lambda turns: data.draw(st.sampled_from(turns)), _finish(data.draw))
    folded: dict[str, Any] = dict(run.signals[0].payload["state"])  # type: ignore[index,call-overload,arg-type]
    for signal in run.signals:
        if signal.name.startswith("state:"):
            folded[signal.name.split(":")[1]] = signal.payload["value"]  # type: ignore[index,call-overload]
    assert folded == run.view.state == run.end_payload["state"]


@pytest.mark.proves("G-47")
@given(st.permutations(NAMES), st.lists(st.sampled_from(["success", "failed"]), min_size=4, max_size=4))
def test_join_of_parallel_agents_wakes_exactly_once_in_any_order_of_their_endings(
    order: list[str], outcomes: list[Any]
) -> None:
    critics = [agent(name, START, emits=[f"{name}:done"], updates="found") for name in NAMES]
    editor = agent("editor", activate_when_all=list(WORDS), updates="report")
    run = Run(workflow(*critics, editor, reducers={"found": lambda old, new: sorted([*(old or []), new])}))
    for name, outcome in zip(order, outcomes, strict=True):
        run.end(name, name, outcome=outcome)
    went_well = all(outcome == "success" for outcome in outcomes)
    assert run.awake() == (["editor"] if went_well else [])
    if went_well:
        run.end("editor", "report")
        assert run.view.state == {"found": list(NAMES), "report": "report"}
    assert run.end_payload["outcome"] == ("success" if went_well else "failed")


@given(st.permutations(NAMES), st.integers(0, 3))
def test_ending_recomputed_after_a_conflict_equals_the_later_one(order: list[str], late: int) -> None:
    critics = [agent(name, START, updates="found") for name in NAMES]
    run = Run(workflow(*critics, reducers={"found": lambda old, new: [*(old or []), new]}))
    first_view = run.view
    for n, name in enumerate(order):
        if n >= late and n > 0:
            assert run.end(name, name, view=first_view) is None
        assert run.end(name, name) is not None
    assert run.view.state == {"found": order}
    assert run.names().count("workflow:end") == 1
