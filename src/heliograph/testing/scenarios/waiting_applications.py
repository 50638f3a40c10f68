"""Applications that wait: for tools, for steps, for time, for other turns. Each names the rules that it exercises.

A function that waits runs again from its start, so its decisions depend on its
turn (`Cast.pick`) and not on a new draw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from heliograph.app import Heliograph
from heliograph.definitions.circuit_breakers import CircuitBreaker
from heliograph.errors import DelegationFailed, HeliographError, StepInDoubt, ToolFailed, ToolTimedOut
from heliograph.execution.context import Context
from heliograph.policy.retry import RetryPolicy
from heliograph.testing.scenarios.building_blocks import COURT, LONG, Cast
from heliograph.testing.simulator.world import SimTransaction
from heliograph.turn.calls import AFTERS, CALL_EFFECTS, CallEffect, CallResult
from heliograph.turn.described_calls import Call, Delegation
from heliograph.turn.interruptions import Defer
from heliograph.turn.step_options import Step
from heliograph.types import JsonObject

TOOLS = ("search", "fetch")
_AGAIN = RetryPolicy(3, "linear", 0.3, retryable_errors="any")
BREAKER = CircuitBreaker(failure_threshold=1, success_threshold=1, timeout_seconds=0.7, half_open_max_calls=1)


def count(results: Iterable[CallResult]) -> int:
    """Sum the results: numbers as they are, other successes as one."""
    good = [result.output for result in results if result.is_good]
    return sum(output if isinstance(output, int) else 1 for output in good)


def _calls(cast: Cast, context: Context, least: int) -> list[Call]:
    """Choose calls of tools: their number, sizes, timeouts, and whether their reports need a token."""
    return [
        Call(TOOLS[n % 2], {"n": n} if cast.pick(context, f"size{n}", range(12)) else {"long": "x" * LONG},
             timeout=cast.pick(context, f"timeout{n}", (1.0, 3.0, 6.0, 30.0, None)),
             needs_token=cast.pick(context, f"token{n}", (True, True, False)))
        for n in range(least + cast.pick(context, "calls", range(3)))
    ]  # fmt: skip


def foundry(cast: Cast) -> Heliograph:
    """Calls of tools, together and one by one; results that end a turn; an agent that subscribes to results; and more calls
    than a budget allows. Rules: K3, K4, K5, K11, K15, K16, K18, S12."""
    app = Heliograph(
        "foundry", reducers={"total": lambda old, new: old + new, "received": lambda old, new: [*old, new]}
    )

    @app.agent(activate_on=["workflow:start"], updates="total", max_attempts=4, budget={"tool_calls": 2})
    async def gather(context: Context) -> int:
        await cast.work(context)
        results = await context.calls(
            _calls(cast, context, 1), fail_fast=cast.pick(context, "fail_fast", (True, False, False))
        )
        if cast.pick(context, "more", (True, False)):
            results += await context.calls([Call("fetch", {}, timeout=5.0)])
        return count(results)

    @app.agent(activate_on=["workflow:start"], updates="total", max_attempts=4, priority="high")
    async def stream(context: Context) -> int:
        results, enough = [], cast.pick(context, "enough", (1, 2, 99, 99))
        async for result in context.as_completed(_calls(cast, context, 2)):
            results.append(result)
            if cast.pick(context, f"pace{len(results)}", (True, False)):
                await context.sleep(cast.plan.between("stream", 0.02, 2.0))
            if len(results) == enough:
                break  # what is still open is closed by the turn's end
        return count(results)

    @app.agent(activate_on=["workflow:start"], updates="note")
    async def last(context: Context) -> Any:
        after = cast.pick(context, "after", AFTERS)
        try:
            return await context.call(
                "fetch", {"after": after}, timeout=cast.pick(context, "timeout", (1.5, 8.0, None)), call_id="only",
                after=after, may_override=cast.pick(context, "override", (True, False)),
            )  # fmt: skip
        except ToolFailed as error:
            return {"failed": error.code}

    @app.agent(activate_on=["workflow:start"], updates="total", max_attempts=4)
    async def careful(context: Context) -> int:
        done = 0
        for n in range(3 + cast.pick(context, "rounds", range(4))):
            timeout = cast.pick(context, f"timeout{n}", (0.2, 0.5, 9.0))
            try:
                await context.call("search", {}, timeout=timeout, circuit_breaker=BREAKER)
                done += 1
            except ToolFailed:
                await context.pause(cast.pick(context, f"pause{n}", (0.2, 0.5, 1.0)))
        return done

    @app.agent(activate_on=["tool:result"], updates="received", when=lambda state, signal: len(state["received"]) < 3
               and signal.payload["name"] == "fetch")  # fmt: skip
    async def hear(context: Context) -> str:
        await cast.work(context)
        return str(context.signal.payload["status"])

    return app


def bench(cast: Cast) -> Heliograph:
    """Steps of each effect class, some of them retried, pauses, and deferred turns, some of them deferred too often. Rules: K13, K14, L0-64, timers."""
    app = Heliograph("bench", reducers={"total": lambda old, new: old + new})

    async def do(
        context: Context, call_id: str, effect: CallEffect, connection: SimTransaction | None = None
    ) -> int | str:
        """Run a step that changes the outside world in its middle."""
        await context.sleep(cast.plan.between("step", 0.0, 0.8))
        happens = partial(cast.oracles.step_effect, context.turn_id, call_id, effect)
        if connection is None:
            happens()
        else:
            connection.do(happens)
        pace = cast.plan.draw("step/pace")
        await context.sleep(cast.plan.between("step", 0.0, 0.5) if pace < 0.85 else 1.2 * cast.lease_seconds)
        cast.may_fail(context, 0.05)
        return 1 if cast.plan.draw("step/long") > 0.1 else "x" * LONG

    async def step(context: Context, n: int, effect: CallEffect) -> int:
        call_id = f"do-{n}-{effect}"
        timeout = cast.pick(context, f"timeout{n}", (None, None, 0.9, 30.0))
        retry = None if effect == "once" else cast.pick(context, f"retry{n}", (None, None, _AGAIN))
        try:
            options: Any = Step(f"do-{effect}", effect=effect, timeout=timeout, call_id=call_id, retry=retry,
                                circuit_breaker=cast.pick(context, f"breaker{n}", (None, BREAKER)))  # fmt: skip
            done: Any = await context.step(options, partial(do, context, call_id, effect))
        except (StepInDoubt, ToolFailed):
            return 0
        return done if isinstance(done, int) else 1

    @app.agent(activate_on=["workflow:start"], updates="total", max_attempts=6)
    async def steps(context: Context) -> int:
        total = 0
        for n, effect in enumerate(CALL_EFFECTS):
            if cast.pick(context, f"effect{n}", (True, True, False)):
                total += await step(context, n, effect)
        return total

    @app.agent(activate_on=["workflow:start"], updates="total", max_attempts=6)
    async def both(context: Context) -> int:
        """Run two steps in parallel, then make a call: both results must be recorded before the turn is released."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(step(context, n, cast.pick(context, f"kind{n}", CALL_EFFECTS))) for n in range(2)
            ]
        return sum(task.result() for task in tasks) + count(await context.calls([Call("search", {}, timeout=5.0)]))

    @app.agent(activate_on=["workflow:start"], updates="total")
    async def rest(context: Context) -> int:
        await context.sleep(cast.plan.between("rest", 0.0, 1.5))
        if context.deferrals < cast.pick(context, "deferrals", (0, 1, 2, 3, 9)):
            raise Defer(
                "not yet", cast.plan.between("defer", 0.1, 2.0), at_most=cast.pick(context, "most", (None, 2, 9))
            )
        await context.pause(cast.pick(context, "pause", (0.3, 2.0, 5.0)))
        return 1

    return app


def _kids(cast: Cast, context: Context, agent: str) -> list[Delegation]:
    """Choose delegations to the agent: their number, depths, timeouts and instances."""
    return [
        Delegation(agent, {"depth": cast.pick(context, f"depth{n}", (0, 0, 1, 2))},
                   timeout=cast.pick(context, f"timeout{n}", (None, None, 2.0, 8.0)),
                   instance=cast.pick(context, f"instance{n}", (None, "desk")))
        for n in range(1 + cast.pick(context, "kids", range(3)))
    ]  # fmt: skip


def clan(cast: Cast) -> Heliograph:
    """Delegation: fork and join on several levels, parents that are stopped or resume, a shared budget, and a turn that waits
    for people for longer than its time to live. Some turns and commands are for another pool. Rules: K4, K17, K19, S12, RTE-05."""
    routes = {"kind": "MessageRouting", "routes": [
        {"match": {"target_agent": "ha*"}, "destination": {"queue": COURT, "priority": "high"}},
        {"match": {"tool_name": "fetch"}, "destination": {"queue": COURT}},
    ]}  # fmt: skip
    app = Heliograph("clan", reducers={"total": lambda old, new: old + new}, routes=routes)

    @app.agent(activate_on=["workflow:start"], updates="total", budget={"tool_calls": 1})
    async def chief(context: Context) -> int:
        join = cast.pick(context, "join", ("all", "each", "fail_fast", "again"))
        if join != "each":
            return count(await context.delegates(
                _kids(cast, context, "hand"), fail_fast=join == "fail_fast", retries=1 if join == "again" else 0,
                timeout=cast.pick(context, "deadline", (None, 3.0, 9.0)),
            ))  # fmt: skip
        streamed: list[Call | Delegation] = [*_kids(cast, context, "hand"), Call("fetch", {}, timeout=4.0)]
        return count([result async for result in context.as_completed(streamed)])

    @app.agent(on_request=True, max_attempts=3)
    async def hand(context: Context) -> int:
        done, depth = await cast.work(context), context.task["depth"] if isinstance(context.task, dict) else 0
        cast.may_fail(context, 0.08)
        if cast.pick(context, "notes", (True, True, False)):
            pace = cast.pick(context, "note", (0.5, 2.0, 3.0))
            with suppress(ToolFailed):  # the chief's budget, which all hands share, may have nothing left
                await context.step(Step("note", effect="idempotent"), context.sleep, pace)
        if depth:
            instance = cast.pick(context, "instance", (None, None, None, "desk"))
            try:
                got = await context.delegate("hand", {"depth": depth - 1}, instance=instance)
                done += got if isinstance(got, int) else 0
            except DelegationFailed:
                return done
        return done

    @app.agent(activate_on=["workflow:start"], updates="verdict", ttl_seconds=9.0)
    async def plaintiff(context: Context) -> Any:
        try:
            return await context.delegate(
                "judge", {"long": "x" * LONG} if cast.pick(context, "size", range(8)) == 0 else None
            )
        except HeliographError as error:
            return {"none": error.code}

    @app.agent(on_request=True, result_fields=[{"name": "verdict"}], ttl_seconds=6.0, pool=COURT)
    async def judge(context: Context) -> JsonObject:
        await cast.work(context)
        if cast.pick(context, "asks", (True, True, False)):
            with suppress(ToolTimedOut):
                await context.ask("Guilty?", timeout=cast.pick(context, "patience", (None, None, 5.0)))
        return {cast.pick(context, "field", ("verdict", "verdict", "verdict", "opinion")): "guilty"}

    return app
