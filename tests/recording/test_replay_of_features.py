"""Replay of what limits, interrupts and divides the work of a turn: budgets, breakers, rates, hooks, deferrals, people, delegations, timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph, Step, tool
from heliograph.agents import Agent
from heliograph.errors import CircuitOpen, HarnessError, RateLimited, RecoverableError, ToolFailed
from heliograph.models import FunctionHarness, ModelReply, ModelRequest, ScriptedModel, ToolCall
from heliograph.phases import GoalAchieved, IterationNeeded, Lifecycle, PhaseContext
from heliograph.recording.file import lines_of
from heliograph.recording.replay_recording import replay_recording
from tests.recording.simulated import record_simulated

START = ["workflow:start"]


class World:
    """What the functions of an application do outside. count: how often; a replay must leave it at 0."""

    def __init__(self) -> None:
        self.count = 0

    def touch(self, value: Any = None) -> Any:
        self.count += 1
        return value

    def fail(self) -> None:
        self.count += 1
        raise RecoverableError("no answer")


def budgets(app: Heliograph, world: World) -> None:
    async def model(request: ModelRequest) -> ModelReply:
        world.touch()
        return ModelReply(f"Two days in {request.prompt}.", input_tokens=20, output_tokens=30, cost_usd=0.01)

    @app.agent(activate_on=START, updates="days", budget={"usd": 0.5, "model_calls": 2})
    async def planner(ctx: Context) -> list[Any]:
        days = await ctx.delegates(
            [Delegation("guide", city, budget={"tokens": 9_000}) for city in ("Oslo", "Rome", "Bern")]
        )
        return [day.output for day in days]

    app.prompt_agent("guide", lambda ctx: ctx.task, model=FunctionHarness(model), on_request=True,
                     price={"input": 3.0, "output": 15.0}, budget={"tokens": 20_000})  # fmt: skip


def breakers_and_rates(app: Heliograph, world: World) -> None:
    @app.agent(activate_on=START, updates="rejected")
    async def pay(ctx: Context) -> list[str]:
        rejected = []
        for order in ("a", "b", "c"):
            try:
                await ctx.step(
                    Step("charge", effect="idempotent", circuit_breaker={"failure_threshold": 2}), world.fail
                )
            except CircuitOpen:
                rejected.append(order)
            except ToolFailed:
                pass
        return rejected

    @app.agent(activate_on=START, updates="limited")
    async def send(ctx: Context) -> list[str]:
        limited = []
        for person in ("ann", "ben", "cem"):
            try:
                await ctx.step(Step("mail", effect="idempotent", timeout=2, rate_limit="2/h"), world.touch, person)
            except RateLimited:
                limited.append(person)
        return limited

    @app.agent(activate_on=START, updates="slow")
    async def slow(ctx: Context) -> str:
        await ctx.step(Step("wait", effect="idempotent", rate_limit="1/s"), world.touch, "a")
        return str(await ctx.step(Step("wait", effect="idempotent", rate_limit="1/s"), world.touch, "b"))


def hooks(app: Heliograph, world: World) -> None:
    @app.agent(activate_on=START, updates="report", lifecycle=Lifecycle(max_iterations=3))
    class Reviewer(Agent):
        async def init(self, ctx: PhaseContext) -> None:
            ctx.working_memory["sources"] = []

        async def act(self, ctx: PhaseContext) -> str:
            ctx.working_memory["sources"].append(await ctx.step("find", world.touch, ctx.iteration + 1))
            return " and ".join(map(str, ctx.working_memory["sources"]))

        async def reflect(self, ctx: PhaseContext) -> Any:
            found = ctx.working_memory["sources"]
            return (
                IterationNeeded("two sources") if len(found) < 2 else GoalAchieved(confidence=0.9, learnings=["enough"])
            )

        async def terminate(self, ctx: PhaseContext) -> str:
            return f"{ctx.output} ({ctx.outcome})"


def interruptions(app: Heliograph, world: World) -> None:
    @app.agent(activate_on=START, updates="deferred")
    async def patient(ctx: Context) -> str:
        found = await ctx.step(Step("look", effect="idempotent"), world.touch, "closed")
        if ctx.deferrals < 2:
            ctx.defer("the shop is closed", 0.5)
        return f"{found} {ctx.deferrals} times"

    @app.agent(activate_on=START, updates="late")
    async def late(ctx: Context) -> str:
        async def forever() -> None:
            world.touch()
            await asyncio.sleep(1000)

        try:
            await ctx.step(Step("forever", timeout=0.3), forever)
        except ToolFailed as error:
            return error.code
        return "never"

    @app.agent(activate_on=START, updates="fragile", timeout_seconds=0.4)
    async def hangs(ctx: Context) -> None:
        ctx.progress(0.1, "hangs")
        await asyncio.Event().wait()

    @app.agent(activate_on=START, updates="rested")
    async def rests(ctx: Context) -> str:
        await asyncio.gather(ctx.pause(0.4), ctx.pause(0.2))
        await ctx.sleep(0.1)
        return "rested"


def human_answers(app: Heliograph, world: World) -> None:
    @tool(approval=lambda call: call["amount"] > 100, effect="idempotent")
    def refund(order: str, amount: int) -> str:
        """Pay a customer back."""
        world.touch()
        return f"{amount} paid back for {order}"

    calls = [
        ToolCall("1", "refund", {"order": "A", "amount": 400}),
        ToolCall("2", "refund", {"order": "B", "amount": 4}),
    ]
    app.prompt_agent("clerk", "Refund.", model=ScriptedModel([*calls, "Done."], per_turn=True), tools=[refund], activate_on=START,
                     updates="refunded")  # fmt: skip

    @app.agent(activate_on=START, updates="granted")
    async def asks(ctx: Context) -> str:
        first, second = await asyncio.gather(ctx.approve("one?"), ctx.approve("two?", arguments={"n": 2}))
        return f"{first.by} {second.arguments}"


def delegations(app: Heliograph, world: World) -> None:
    @app.agent(activate_on=START, updates="joined")
    async def parent(ctx: Context) -> str:
        found = await ctx.delegates([Delegation("child", n) for n in range(3)], retries=1)
        one = await ctx.delegate("child", 7, instance="other")
        return f"{[each.status for each in found]} {one}"

    @app.agent(on_request=True)
    async def child(ctx: Context) -> str:
        if ctx.task == 1:
            raise ValueError("not one")
        return f"{await ctx.step(Step('work', effect='idempotent'), world.touch, ctx.task)} done"

    async def busy(request: ModelRequest) -> ModelReply:
        world.touch()
        raise HarnessError("the provider is busy", recoverable=True)

    models = [FunctionHarness(busy), ScriptedModel(["From the second."], per_turn=True)]
    app.prompt_agent("fallback", "Speak", model=models, activate_on=START, updates="spoken")


FEATURES = [budgets, breakers_and_rates, hooks, interruptions, human_answers, delegations]


def app_of(feature: Callable[[Heliograph, World], None], world: World) -> Heliograph:
    app = Heliograph("features", memory=None)
    feature(app, world)
    return app


def assert_replayed(feature: Callable[[Heliograph, World], None], seed: int, **options: Any) -> None:
    replayed = World()
    found = record_simulated(app_of(feature, World()), seed, **options)
    result = replay_recording(found, app_of(feature, replayed).workflow)
    assert result.is_same, list(result.lines())
    assert result.gaps == []
    assert replayed.count == 0, "a replay calls no model, no tool and no step"
    assert list(lines_of(result.recording)) == list(lines_of(found))


@pytest.mark.more
@pytest.mark.proves("SIG-04")
@pytest.mark.parametrize("feature", FEATURES)
def test_feature_is_replayed_bit_for_bit(feature: Callable[[Heliograph, World], None]) -> None:
    assert_replayed(feature, 1, in_order=True)


@pytest.mark.more
@pytest.mark.proves("SIG-04")
@pytest.mark.parametrize("feature", FEATURES)
def test_feature_is_replayed_though_workers_die(feature: Callable[[Heliograph, World], None]) -> None:
    assert_replayed(feature, 2, faults=True)
