"""`ctx.map`, and how many children of one parent run at once."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from heliograph import Context, Delegation, Heliograph, Signal
from heliograph.agents import Agent
from heliograph.errors import DelegationFailed, InvalidInput
from heliograph.execution.delegation_checks import check_limit
from heliograph.models import ModelReply, ScriptedModel
from heliograph.phases import PhaseContext
from tests.runtime.kit import START, Rig


class Square(BaseModel):
    of: int
    is_: int


class Fixture:
    """A parent that runs `work`, and children of each kind. found: what `work` returned, in each run that reached its end."""

    def __init__(self, work: Callable[[Context, Fixture], Awaitable[Any]], **options: Any):
        self.app = Heliograph("mapping", **options)
        self.found: list[Any] = []

        @self.app.agent(activate_on=START)
        async def parent(ctx: Context) -> None:
            self.found.append(await work(ctx, self))

        @self.app.agent(on_request=True)
        async def square(ctx: Context) -> Square:
            if ctx.task == "fail":
                raise ValueError("no number")
            return Square(of=ctx.task, is_=ctx.task * ctx.task)

        @self.app.agent(on_request=True)
        def wrong(ctx: Context) -> int:
            return "many"  # type: ignore[return-value]

        @self.app.agent(on_request=True)
        class Critic(Agent):
            async def act(self, ctx: PhaseContext) -> str:
                return f"good {ctx.task}"

        self.square, self.wrong, self.critic = square, wrong, Critic
        model = ScriptedModel(lambda _: ModelReply("", output={"of": 3, "is_": 9}))
        self.reviewer = self.app.prompt_agent("reviewer", "Review.", model=model, output=Square, on_request=True)


def most_open(signals: list[Signal]) -> int:
    """The most children that were open at once, by the log."""
    count = most = 0
    for signal in signals:
        status = signal.payload["status"] if signal.name in ("delegation", "delegation_response") else None  # type: ignore[index,call-overload]
        count += (status == "accepted") - (status in ("completed", "failed"))
        most = max(most, count)
    return most


@pytest.mark.proves("P-41")
@pytest.mark.parametrize(("limit", "most"), [(2, 2), (None, 5)])
async def test_map_returns_typed_outputs_by_index_and_runs_at_most_the_limit_at_once(
    rig: Rig, limit: int | None, most: int
) -> None:
    fixture = Fixture(lambda ctx, self: ctx.map(self.square, range(5), limit=limit))
    result = await rig.run(fixture.app)
    assert fixture.found == [[Square(of=n, is_=n * n) for n in range(5)]]
    assert most_open(result.signals) == most


@pytest.mark.proves("P-41")
async def test_map_starts_no_child_after_a_failure_and_raises_the_first(rig: Rig) -> None:
    async def work(ctx: Context, self: Fixture) -> Any:
        with pytest.raises(DelegationFailed, match="no number") as raised:
            await ctx.map("square", [1, "fail", 3, 4, 5, 6], limit=2)
        return raised.value.call_id

    fixture = Fixture(work)
    result = await rig.run(fixture.app)
    assert fixture.found == ["c2"]
    started = [s.payload["id"] for s in result.signals if s.name == "delegation"]  # type: ignore[index,call-overload]
    assert started[:2] == ["c1", "c2"]
    assert "c4" not in started


@pytest.mark.parametrize("action", ["map", "delegates"])
async def test_children_beyond_the_activations_of_the_run_are_rejected_before_the_first_starts(
    rig: Rig, action: str
) -> None:
    async def work(ctx: Context, self: Fixture) -> Any:
        def children(count: int) -> Awaitable[list[Any]]:
            if action == "map":
                return ctx.map(self.square, range(count), limit=5)
            return ctx.delegates([Delegation(self.square, n) for n in range(count)])

        await ctx.delegate(self.square, 1)
        with pytest.raises(
            InvalidInput, match=rf"ctx.{action} has 10 children, and the run may have \d turns more: raise max_act"
        ):
            await children(10)
        return len(await children(9))

    fixture = Fixture(work, max_activations=11)
    assert (await rig.run(fixture.app)).outcome == "success"
    assert fixture.found == [9]


async def test_output_type_that_cannot_be_resolved_is_rejected_without_an_unawaited_coroutine(rig: Rig) -> None:
    class Hidden:
        """A name that only this function knows, so the text of the annotation cannot be resolved."""

    async def odd(ctx: Context) -> Hidden:
        return Hidden()

    async def work(ctx: Context, self: Fixture) -> Any:
        several = [Delegation(odd)]
        for make in (
            lambda: ctx.delegate(odd), lambda: ctx.delegates(several), lambda: ctx.calls(several), lambda: ctx.map(odd, [1]),
            lambda: ctx.as_completed(several),
        ):  # fmt: skip
            with pytest.raises(InvalidInput, match="cannot be resolved"):
                make()
        gc.collect()  # a coroutine that no one awaits would warn here
        return "rejected"

    fixture = Fixture(work)
    fixture.app.agent(on_request=True)(odd)
    await rig.run(fixture.app)
    assert fixture.found == ["rejected"]


async def test_delegates_run_at_most_the_limit_at_once_and_a_failure_cancels_those_that_never_began(rig: Rig) -> None:
    async def work(ctx: Context, self: Fixture) -> Any:
        tasks = [Delegation(self.square, task) for task in (1, 2, "fail", 4, 5, 6)]
        every = await ctx.delegates(tasks, limit=1)
        fast = await ctx.delegates(tasks, limit=1, fail_fast=True)
        return [[result.status for result in results] for results in (every, fast)]

    fixture = Fixture(work)
    result = await rig.run(fixture.app)
    assert fixture.found[0] == [
        ["success", "success", "failed", "success", "success", "success"],
        ["success", "success", "failed", "canceled", "canceled", "canceled"],
    ]
    assert most_open(result.signals) == 1


async def test_agent_of_a_delegation_is_its_function_its_spec_its_class_or_its_name(rig: Rig) -> None:
    async def work(ctx: Context, self: Fixture) -> Any:
        return [
            await ctx.delegate(self.square, 2), await ctx.delegate(self.reviewer, None),
            await ctx.delegate(self.critic, "text"), await ctx.delegate("square", 2),
        ]  # fmt: skip

    fixture = Fixture(work)
    result = await rig.run(fixture.app)
    assert result.outcome == "success", [s.payload for s in result.signals if s.name == "error"]
    assert fixture.found == [[Square(of=2, is_=4), Square(of=3, is_=9), "good text", {"of": 2, "is_": 4}]]


async def test_output_of_another_type_and_a_function_that_is_no_agent_are_rejected(rig: Rig) -> None:
    async def work(ctx: Context, self: Fixture) -> Any:
        with pytest.raises(DelegationFailed, match="does not match its type") as raised:
            await ctx.delegate(self.wrong)
        with pytest.raises(InvalidInput, match=r"is no agent of it; register it with @app\.agent"):
            await ctx.delegate(most_open, 1)  # type: ignore[arg-type]
        return [raised.value.code, raised.value.details["reason"]]

    fixture = Fixture(work)
    await rig.run(fixture.app)
    assert fixture.found == [["DELEGATION_ERROR", "result_schema"]]


def test_limit_is_a_number_from_one_without_a_common_timeout() -> None:
    for limit in (0, -1, True, 1.5, "2"):
        with pytest.raises(InvalidInput, match="from 1"):
            check_limit(limit)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="give each Delegation its own"):
        check_limit(3, 10.0)
    check_limit(None, 10.0)
