"""Runs from workflow:start to workflow:end, on one worker."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from heliograph import Context, Heliograph, Signal
from heliograph.errors import InvalidInput
from heliograph.models import ScriptedModel
from heliograph.outbox_records import Event
from heliograph.signals.trace import chain
from tests.runtime.kit import START, Rig, names, one


class Post(BaseModel):
    text: str
    words: int = 0
    verdict: str = ""


def newsroom() -> Heliograph:
    app = Heliograph("newsroom", state=Post)

    @app.agent(activate_on=START, emits=["words:counted"], updates="words")
    def counter(ctx: Context) -> int:
        return len(ctx.state.text.split())

    @app.agent(activate_on=["words:counted"], when=lambda post: post.words > 2, updates="verdict")
    async def editor(ctx: Context) -> str:
        return f"{ctx.state.words} words"

    return app


@pytest.mark.proves("SIG-62", "SIG-21", "SIG-03", "LC-01", "LC-02")
async def test_run_returns_its_state_trace_metrics_and_outcome(rig: Rig) -> None:
    result = await rig.run(newsroom(), {"text": "one two three"})
    assert result.outcome == "success"
    assert result.state == Post(text="one two three", words=3, verdict="3 words")
    assert names(result.signals) == [
        "workflow:start", "agent:activated",
        "ready", "plan_ready", "action_complete", "reflection_complete", "terminated", "agent:completed",
        "state:words:changed", "words:counted", "agent:activated",
        "ready", "plan_ready", "action_complete", "reflection_complete", "terminated", "agent:completed",
        "state:verdict:changed", "workflow:end",
    ]  # fmt: skip
    assert [signal.seq for signal in result.signals] == list(range(1, 20))
    assert result.metrics["turns"] == result.metrics["activations"] == 2


@pytest.mark.proves("SIG-61")
async def test_every_signal_leads_back_to_the_root(rig: Rig) -> None:
    result = await rig.run(newsroom(), {"text": "one two three"})
    for signal in result.signals:
        assert chain(result.signals, signal.id)[-1].name == "workflow:start"


@pytest.mark.proves("SIG-23", "SIG-45")
async def test_false_guard_emits_a_signal_and_starts_no_turn(rig: Rig) -> None:
    result = await rig.run(newsroom(), {"text": "one"})
    guard = {"verdict": False, "reads": [{"key": "words", "value": 1}]}
    assert one(result.signals, "agent:skipped") == {"agent": "editor", "reason": "when guard false", "guard": guard}
    assert [turn.agent for turn in await rig.runtime.reader.turns(run_id=result.run_id)] == ["counter"]
    assert result.state.verdict == ""


@pytest.mark.proves("SIG-63", "SIG-25", "SIG-26", "SIG-46")
async def test_order_of_the_example_in_the_specification_holds(rig: Rig) -> None:
    app = Heliograph("example")
    app.prompt_agent(
        "writer", "Write.", activate_on=START, emits=["draft:ready"], model=ScriptedModel(["one two three"])
    )
    result = await rig.run(app)
    spoken = [n for n in names(result.signals) if n.partition(":")[0] in ("workflow", "harness", "text", "draft")
              or n == "agent:activated"]  # fmt: skip
    deltas = [n for n in spoken if n == "text:delta"]
    assert deltas
    assert spoken == ["workflow:start", "agent:activated", "harness:start", *deltas, "text:complete", "harness:end",
                      "draft:ready", "workflow:end"]  # fmt: skip


@pytest.mark.proves("L0-03", "L0-07", "L0-82", "L0-107")
async def test_every_turn_has_one_deliverable_in_its_box_and_one_task_event_that_points_to_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Event] = []
    publish = rig.runtime.world.publish

    async def recorded(project: str, events: Sequence[Event]) -> None:
        published.extend(events)
        await publish(project, events)

    monkeypatch.setattr(rig.runtime.world, "publish", recorded)
    await rig.runtime.ledger.declare_wire("postgres")
    result = await rig.run(newsroom(), {"text": "one two three"})
    for turn in await rig.runtime.reader.turns(run_id=result.run_id):
        (card,) = await rig.runtime.reader.cards(turn.turn_id)
        assert (card.kind, card.card_id) == ("task.deliverable", turn.deliverable_card_id)
        # a relay may publish an event a second time, under the same key
        (event,) = {each.key: each for each in published if each.body["agent_turn_id"] == turn.turn_id}.values()
        assert (event.subject, event.key) == (f"evt.agent.{result.run_id}/{turn.agent}.task", f"evt:{turn.turn_id}")
        assert event.body == {"agent_turn_id": turn.turn_id, "status": turn.outcome, "output_box_id": turn.output_box_id,
                              "deliverable_card_id": turn.deliverable_card_id}  # fmt: skip
        assert card.turn_id == turn.turn_id


@pytest.mark.parametrize("is_async", [True, False])
async def test_agents_woken_by_one_signal_run_in_parallel(rig: Rig, is_async: bool) -> None:
    meeting, threads = asyncio.Barrier(3), threading.Barrier(3)
    app = Heliograph("parallel", reducers={"met": lambda old, new: [*(old or []), new]})

    async def waits(ctx: Context) -> str:
        async with asyncio.timeout(60):
            await meeting.wait()
        return ctx.agent

    def blocks(ctx: Context) -> str:
        threads.wait(10)
        return ctx.agent

    for name in ("a", "b", "c"):
        app.agent(name=name, activate_on=START, updates="met")(waits if is_async else blocks)
    result = await rig.run(app)
    assert sorted(result.state["met"]) == ["a", "b", "c"]


@pytest.mark.proves("SIG-01")
async def test_agent_reaches_others_only_by_signals_and_delegation(rig: Rig) -> None:
    offered: list[str] = []
    app = Heliograph("alone")

    @app.agent(activate_on=START)
    def looker(ctx: Context) -> None:
        offered.extend(name for name in dir(ctx) if not name.startswith("_"))

    @app.agent(activate_on=["never:comes"])
    def other(_ctx: Context) -> None: ...

    await rig.run(app)
    assert offered == [
        "activation_id", "agent", "approve", "as_completed", "ask", "attempt", "call", "calls", "context", "context_box_id",
        "defer", "deferrals", "delegate", "delegates", "deps", "document", "emit", "emitted", "idempotency_key", "is_replaying", "logger", "map",
        "on_cleanup", "pause", "phase", "progress", "recall", "remember", "report_error", "run_id", "signal", "sleep", "state", "step", "task", "task_context", "turn_id",
    ]  # fmt: skip


def _at(signal: Signal, key: str) -> Any:
    assert isinstance(signal.payload, dict)
    return signal.payload[key]


@pytest.mark.proves("SIG-01", "SIG-15", "SIG-60")
async def test_every_exchange_between_agents_is_a_logged_signal_with_its_emitter(rig: Rig) -> None:
    app = Heliograph("talk")

    @app.agent(activate_on=START, emits=["fact:found"])
    def finder(ctx: Context) -> None:
        ctx.emit("fact:found", {"n": 1})

    @app.agent(activate_on=["fact:found"], updates="verdict")
    async def editor(ctx: Context) -> Any:
        return await ctx.delegate("critic", {"fact": 1})

    @app.agent(on_request=True)
    def critic(ctx: Context) -> str:
        return f"judged {ctx.task}"

    result = await rig.run(app)
    assert result.outcome == "success"
    signals = {signal.id: signal for signal in result.signals}
    turns = await rig.runtime.reader.turns(run_id=result.run_id)
    activations = {turn.agent: signals[turn.activation_id] for turn in turns}
    assert set(activations) == {"finder", "editor", "critic"}
    assert len([signal for signal in result.signals if signal.name == "agent:activated"]) == len(turns)
    # the log has the cause of each turn: a signal of another agent, or the start of the run
    woken_by = {agent: signals[activation.parent or ""] for agent, activation in activations.items()}
    assert {agent: (cause.name, cause.agent) for agent, cause in woken_by.items()} == {
        "finder": ("workflow:start", None), "editor": ("fact:found", "finder"), "critic": ("delegation", "editor"),
    }  # fmt: skip
    answers = [signal for signal in result.signals if signal.name == "delegation_response"]
    (ended,) = [s for s in result.signals if s.name == "agent:completed" and s.agent == "critic"]
    (task_id,) = [turn.turn_id for turn in turns if turn.agent == "critic"]
    assert [(signal.agent, _at(signal, "task_id"), _at(signal, "status")) for signal in answers] == [
        ("critic", task_id, "in_progress"), ("editor", task_id, "completed"),
    ]  # fmt: skip
    assert _at(ended, "output") == "judged {'fact': 1}"
    # signals of the run itself have no agent; every other signal names its agent
    assert {signal.name for signal in result.signals if signal.agent is None} == {"workflow:start", "workflow:end"}


async def test_context_identifies_the_agent_and_the_signal_that_woke_it(rig: Rig) -> None:
    seen: dict[str, Any] = {}
    app = Heliograph("who")

    @app.agent(activate_on=START, emits=["x:y"])
    def first(ctx: Context) -> None:
        ctx.emit("x:y", {"n": 1})

    @app.agent(activate_on=["x:y"])
    def second(ctx: Context) -> None:
        seen.update(name=ctx.signal.name, payload=ctx.signal.payload, by=ctx.signal.agent, cause=ctx.signal.id,
                    me=ctx.agent, attempt=ctx.attempt, key=ctx.idempotency_key)  # fmt: skip

    result = await rig.run(app, run_id="run_who")
    cause = next(signal for signal in result.signals if signal.name == "x:y")
    turn = next(turn for turn in await rig.runtime.reader.turns() if turn.agent == "second")
    assert seen == {"name": "x:y", "payload": {"n": 1}, "by": "first", "cause": cause.id, "me": "second", "attempt": 1,
                    "key": f"{rig.runtime.settings.project}/who/{turn.turn_id}"}  # fmt: skip


# ── State of any type ──


@dataclass
class Data:
    notes: list[str] = field(default_factory=list)


class Typed(TypedDict):
    notes: list[str]


class Model(BaseModel):
    notes: list[str] = []


@pytest.mark.parametrize("kind", [Model, Data, Typed, None])
async def test_state_is_returned_in_the_type_of_the_input(rig: Rig, kind: Any) -> None:
    app = Heliograph("typed", state=kind, reducers={"notes": lambda old, new: [*old, new]})

    @app.agent(activate_on=START, updates="notes")
    def a(ctx: Context) -> str:
        assert isinstance(ctx.state, dict if kind in (Typed, None) else kind)
        return "hello"

    result = await rig.run(app, {"notes": ["first"]})
    expected = {"notes": ["first", "hello"]}
    assert result.state == (expected if kind in (Typed, None) else kind(**expected))


async def test_agent_that_returns_its_changed_copy_changes_the_state(rig: Rig) -> None:
    app = Heliograph("copy")

    @app.agent(activate_on=START, updates="notes")
    def a(ctx: Context) -> Any:
        ctx.state["notes"].append("mine")
        ctx.document["other"] = "not declared, so it goes nowhere"
        return ctx.state["notes"]

    result = await rig.run(app, {"notes": ["first"], "other": ["kept"]})
    assert result.state == {"notes": ["first", "mine"], "other": ["kept"]}
    assert one(result.signals, "state:notes:changed") == {"value": ["mine"], "from_index": 1}


async def test_invalid_state_starts_nothing(rig: Rig) -> None:
    with pytest.raises(InvalidInput) as caught:
        await rig.run(newsroom(), {"words": 3})
    assert caught.value.code == "invalid_state"
    assert await rig.runtime.reader.runs(10) == []


# ── Emitting ──


@pytest.mark.proves("SIG-35")
async def test_signals_are_emitted_by_default_unless_an_agent_emits_its_own(rig: Rig) -> None:
    app = Heliograph("emits")

    @app.agent(activate_on=START, emits=["a:one", "a:two"])
    def implicit(_ctx: Context) -> str:
        return "out"

    @app.agent(activate_on=START, emits=["b:one", "b:two"])
    def explicit(ctx: Context) -> str:
        ctx.emit("b:two", [1])
        return "out"

    result = await rig.run(app)
    spoken = {signal.name: signal.payload for signal in result.signals if signal.name[:2] in ("a:", "b:")}
    assert set(spoken) == {"a:one", "a:two", "b:two"}
    assert spoken["b:two"] == [1]
    assert spoken["a:one"]["output"] == "out"  # type: ignore[index,call-overload]


async def test_progress_of_a_plain_function_is_visible_while_it_runs(rig: Rig) -> None:
    may_end = threading.Event()
    app = Heliograph("progress")

    @app.agent(activate_on=START)
    def slow(ctx: Context) -> None:
        ctx.progress(0.5, "half")
        assert may_end.wait(10)
        ctx.progress(1)

    def watch(signal: Any) -> None:
        if signal.name == "agent:progress":
            may_end.set()

    result = await rig.run(app, on_signal=watch)
    progress = [signal.payload for signal in result.signals if signal.name == "agent:progress"]
    assert progress == [{"agent": "slow", "fraction": 0.5, "message": "half"},
                    {"agent": "slow", "fraction": 1.0, "message": ""}]  # fmt: skip


async def test_agent_runs_its_turns_one_at_a_time_in_activation_order(rig: Rig) -> None:
    inside: list[int] = []
    app = Heliograph("fifo", reducers={"seen": lambda old, new: [*(old or []), new]})

    @app.agent(activate_on=START, emits=["n:next"])
    def source(ctx: Context) -> None:
        for n in range(5):
            ctx.emit("n:next", n)

    @app.agent(activate_on=["n:next"], updates="seen")
    async def sink(ctx: Context) -> Any:
        inside.append(1)
        assert len(inside) == 1
        await ctx.sleep(0.001)
        inside.pop()
        return ctx.signal.payload

    assert (await rig.run(app)).state["seen"] == [0, 1, 2, 3, 4]


@pytest.mark.proves("SIG-34", "S11")
async def test_state_far_larger_than_a_signal_is_started_changed_and_emitted(rig: Rig) -> None:
    app = Heliograph("archive")

    @app.agent(activate_on=START, updates="copy")
    def copier(ctx: Context) -> str:
        return str(ctx.document["text"]).upper()

    @app.agent(activate_on=["state:copy:changed"], updates="size")
    def measurer(ctx: Context) -> int:
        return len(ctx.signal.payload["value"])

    result = await rig.run(app, {"text": "x" * 200_000})
    assert result.outcome == "success"
    assert result.state == {"text": "x" * 200_000, "copy": "X" * 200_000, "size": 200_000}
    payload_by_name: dict[str, Any] = {signal.name: signal.payload for signal in result.signals}
    assert payload_by_name["workflow:start"]["state"] == {"text": "x" * 200_000}
    assert payload_by_name["state:copy:changed"]["value"] == "X" * 200_000
    assert payload_by_name["workflow:end"]["state"] == result.state
