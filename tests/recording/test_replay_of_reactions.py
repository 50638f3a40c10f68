"""Reactions that a worker computed apart from a turn, of runs that nobody recorded: their activations and skips are compared."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import replay_recording
from heliograph.signals.guard_record import place_of_guard, recorded_guard, without_place
from heliograph.signals.model import Signal
from tests.recording.simulated import record_simulated


def watched(*, verdict: bool = True, second_on: str = "never", audits: str = "tool:result") -> Heliograph:
    """The result of an approval wakes an auditor, skips a sleeper and completes a join, each in a reaction apart from the turn that waits."""
    app = Heliograph("watched")

    @app.agent(activate_on=["workflow:start"], updates="by")
    async def clerk(ctx: Context) -> str:
        return str((await ctx.approve("pay?")).by)

    @app.agent(activate_on=[audits], when=lambda state: verdict, updates="seen")
    async def auditor(ctx: Context) -> str:
        return ctx.signal.name

    @app.agent(activate_on=["tool:result"], when=lambda state: "closed" in state)
    async def sleeper(ctx: Context) -> None:
        return None

    @app.agent(activate_when_all=["workflow:start", "tool:result"], updates="both")
    async def joined(ctx: Context) -> str:
        return "both"

    @app.agent(activate_on=[second_on])
    async def second(ctx: Context) -> None:
        return None

    return app


@pytest.fixture(scope="module")
def unrecorded() -> Recording:
    found = record_simulated(watched(), 1, record=False)
    assert found.header.outcome == "success"
    return found


def _woken(recording: Recording, agent: str) -> Signal:
    [found] = [s for s in recording.signals if s.agent == agent and s.name in ("agent:activated", "agent:skipped")]
    assert found.turn_id is None, "no turn commits this reaction"
    return found


@pytest.mark.proves("P-27")
def test_reaction_apart_from_turns_is_reproduced(unrecorded: Recording) -> None:
    result = replay_recording(unrecorded, watched().workflow)
    assert result.is_same, [*result.lines()]
    assert len(result.gaps) == 1
    [reported] = [s for s in unrecorded.signals if s.name == "tool:result"]
    assert result.reproduced == len(unrecorded.signals) - 1, reported
    assert {_woken(unrecorded, agent).name for agent in ("auditor", "joined", "sleeper")} == {
        "agent:activated",
        "agent:skipped",
    }


@pytest.mark.proves("P-27")
@pytest.mark.parametrize(("change", "agent", "difference"), [
    ({"verdict": False}, "auditor", 'agent:activated differs: /name was "agent:activated", and is "agent:skipped" now'),
    ({"audits": "workflow:end"}, "auditor", "there is one signal less, agent:activated"),
    ({"second_on": "tool:result"}, "second", "there is one more signal, agent:activated, which tool:result causes"),
])  # fmt: skip
def test_changed_reaction_is_named_at_its_signal(
    unrecorded: Recording, change: dict[str, Any], agent: str, difference: str
) -> None:
    first = replay_recording(unrecorded, watched(**change).workflow).first
    assert first is not None
    assert (first.agent, first.difference) == (agent, difference)
    assert first.part.startswith("reaction at signal ")
    if agent == "auditor":
        assert first.seq == _woken(unrecorded, agent).seq


@pytest.mark.proves("P-27")
def test_agent_that_wakes_by_another_signal_of_the_same_turn_is_named() -> None:
    def shop(on: str) -> Heliograph:
        app = Heliograph("shop")

        @app.agent(activate_on=["workflow:start"], updates="count", emits=["noted"])
        async def clerk(ctx: Context) -> int:
            return 1

        @app.agent(activate_on=[on])
        async def reader(ctx: Context) -> None:
            return None

        return app

    for record in (True, False):
        recording = record_simulated(shop("noted"), 1, record=record)
        first = replay_recording(recording, shop("state:count:changed").workflow).first
        assert first is not None
        [noted, changed] = [
            next(s for s in recording.signals if s.name == name) for name in ("noted", "state:count:changed")
        ]
        assert first.difference == f'agent:activated differs: /parent was "{noted.id}", and is "{changed.id}" now'


def stepping(*, second_on: str = "nothing", guard: bool = True, added_on: str = "", ends: str = "never") -> Heliograph:
    """A turn whose step commits signals before its end: no agent subscribes to them unless the test says so."""
    app = Heliograph("stepping", end_when=lambda state: ends in state)

    @app.agent(activate_on=["workflow:start"], updates="by")
    async def clerk(ctx: Context) -> str:
        async def three() -> int:
            return 3

        await ctx.step("count", three)
        return str((await ctx.approve("pay?")).by)

    @app.agent(activate_on=["tool:result"], updates="seen")
    async def auditor(ctx: Context) -> str:
        return ctx.signal.name

    @app.agent(activate_on=["nothing", second_on], when=lambda state: guard)
    async def second(ctx: Context) -> None:
        return None

    @app.agent(activate_when_all=["tool:call", "nothing"])
    async def joined(ctx: Context) -> None:
        return None

    if added_on:

        @app.agent(activate_on=[added_on])
        async def added(ctx: Context) -> None:
            return None

    return app


@pytest.mark.proves("P-27")
@pytest.mark.parametrize("record", [True, False])
def test_signal_without_a_reaction_that_wakes_an_agent_now_is_named(*, record: bool) -> None:
    recording = record_simulated(stepping(), 1, record=record)
    assert replay_recording(recording, stepping().workflow).is_same
    call = next(s for s in recording.signals if s.name == "tool:call")
    changes: list[tuple[dict[str, Any], str]] = [({}, "activated"), ({"guard": False}, "skipped")]
    for change, kind in changes:
        first = replay_recording(recording, stepping(second_on="tool:call", **change).workflow).first
        assert first is not None
        assert (first.seq, first.agent) == (call.seq, "second")
        assert first.difference == f"there is one more signal, agent:{kind}, which tool:call causes"
    accepted = ReplayPolicy(accept=["agents"])
    assert replay_recording(recording, stepping(added_on="tool:call").workflow, accepted).is_same
    assert not replay_recording(recording, stepping(added_on="tool:call").workflow).is_same


@pytest.mark.proves("P-27")
def test_signal_of_a_run_that_stopped_before_its_reaction_wakes_nobody() -> None:
    for record in (True, False):
        recording = record_simulated(stepping(ends="seen", second_on="plan_ready"), 1, record=record)
        assert replay_recording(recording, stepping(ends="seen", second_on="plan_ready").workflow).is_same


@pytest.mark.proves("P-27")
def test_line_of_a_guard_that_raises_is_no_divergence() -> None:
    def app(*, moved: bool) -> Heliograph:
        app = Heliograph("moved")
        guards = (
            lambda state: state["missing"] > 1,
            lambda state: state["missing"] > 1,
        )

        @app.agent(activate_on=["workflow:start"], when=guards[moved])
        async def broken(ctx: Context) -> None:
            return None

        return app

    for record in (True, False):
        recording = record_simulated(app(moved=False), 1, record=record)
        [skipped] = [s for s in recording.signals if s.name == "agent:skipped"]
        assert place_of_guard(recorded_guard(skipped.payload)).startswith(" at test_replay_of_reactions.py:")
        assert without_place(skipped.payload) != skipped.payload
        assert replay_recording(recording, app(moved=True).workflow).is_same


@pytest.mark.proves("SIG-04")
@pytest.mark.parametrize(
    ("read", "difference"),
    [
        ("never", None),
        ("noted", "the run after finish differs: /memory/join_signals was absent"),
        ("workflow:start", "the run after finish differs: /memory/join_signals was absent"),
    ],
    ids=["no part reads it", "claim", "view"],
)  # fmt: skip
def test_join_that_still_waits_is_compared_with_the_run_that_a_later_part_reads(
    read: str, difference: str | None
) -> None:
    def app(join: str) -> Heliograph:
        app = Heliograph("joins")

        @app.agent(activate_on=["workflow:start"], emits=["noted"])
        async def clerk(ctx: Context) -> int:
            return 1

        @app.agent(activate_on=[read])
        async def reader(ctx: Context) -> None:
            return None

        @app.agent(activate_when_all=[join, "never"])
        async def joined(ctx: Context) -> None:
            return None

        return app

    recording = record_simulated(app("other"), 1)
    assert replay_recording(recording, app("other").workflow).is_same
    first = replay_recording(recording, app("noted").workflow).first
    if difference is None:
        assert first is None, "no signal of the run depends on it"
    else:
        assert first is not None
        assert (first.kind, first.difference[: len(difference)]) == ("call", difference)
        assert not any(key in first.recorded for key in ("activations", "version"))


def limited(*, tokens: int = 100_000, pool: str = "default") -> Heliograph:
    app = Heliograph("limited")

    @app.agent(activate_on=["workflow:start"], updates="first", budget={"tokens": tokens})
    async def first(ctx: Context) -> str:
        return "done"

    @app.agent(activate_on=["state:first:changed"], pool=pool)
    async def second(ctx: Context) -> str:
        return "done"

    return app


@pytest.mark.proves("SIG-04")
@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"tokens": 1}, "start_runs commits something else: /limits/first/budget/tokens was 100000, and is 1 now"),
        ({"pool": "gpu"}, 'finish commits something else: /limits was absent, and is {"second": {"pool": "gpu"}} now'),
    ],
)
def test_other_budget_or_pool_of_a_turn_is_a_divergence(changed: dict[str, Any], difference: str) -> None:
    found = record_simulated(limited(), 1)
    assert replay_recording(found, limited().workflow).is_same
    [first, *_] = replay_recording(found, limited(**changed).workflow).lines()
    assert first.endswith(difference)
