"""The tools of this process: each call once, side by side with the others, recorded as it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from heliograph.errors import AgentFailed, HeliographError, TurnTimedOut
from heliograph.policy.retry import DELAY_SECONDS_MAX, backoff_seconds, jitter_of
from heliograph.reactive.state import to_json
from heliograph.tools.bound import BoundTool
from heliograph.tools.context import ToolContext
from heliograph.tools.secrets import resolved
from heliograph.turn.calls import Asked, CallResult, Journal
from heliograph.turn.results import check_result
from heliograph.worker.asking import Asking
from heliograph.worker.doubt import check_doubt, decided_doubt, question_of_doubt
from heliograph.worker.held import Held

_TOO_LARGE = "payload_too_large"


class Here:
    """Makes the calls of one turn whose tools are functions."""

    def __init__(self, held: Held, journal: Journal, asking: Asking):
        self._held = held
        self._journal = journal
        self._asking = asking

    async def done(self, step: int, here: Mapping[int, tuple[BoundTool, dict[str, Any]]]) -> dict[int, CallResult]:
        """What came of calls, by their places. Raises Suspended, TurnLost, AgentFailed."""
        made = {n: self._asked(f"m{step}-{n + 1}", *here[n]) for n in here}
        done = await _side_by_side(self._step(made[n], *here[n]) for n in here)
        results = dict(zip(here, done, strict=True))
        for n, result in results.items():
            check_doubt(here[n][0].tool, result)
        return await self._decided_doubts(here, results)

    async def _decided_doubts(
        self, here: Mapping[int, tuple[BoundTool, dict[str, Any]]], results: dict[int, CallResult]
    ) -> dict[int, CallResult]:
        """The results, with those in doubt as somebody has decided where the tool says so."""
        doubts = {
            n: question_of_doubt(here[n][0].tool, result.call_id, self._journal.new_step(), here[n][1])
            for n, result in results.items() if result.status == "unknown" and here[n][0].tool.in_doubt == "ask"
        }  # fmt: skip
        if not doubts:
            return results
        decisions = dict(zip(doubts, await self._asking.all(list(doubts.values())), strict=True))
        known = {n: decided_doubt(results[n], decisions[n]) for n in doubts}
        again = {
            n: self._asked(f"{results[n].call_id}-again", *here[n]) for n, result in known.items() if result is None
        }
        done = dict(zip(again, await _side_by_side(self._step(again[n], *here[n]) for n in again), strict=True))
        return {n: known.get(n) or done.get(n) or result for n, result in results.items()}

    def _asked(self, call_id: str, tool: BoundTool, arguments: dict[str, Any]) -> Asked:
        made = tool.tool
        seconds = made.timeout_seconds
        if seconds is not None and made.retries:
            seconds += sum(seconds + DELAY_SECONDS_MAX for _ in range(made.retries))  # a bound: each try has its own
        return Asked(call_id, self._journal.new_step(), made.name, "inline", arguments, seconds, made.effect)

    async def _step(self, asked: Asked, tool: BoundTool, arguments: dict[str, Any]) -> CallResult:
        claimed = self._held.claimed
        context = ToolContext(claimed.run_id, claimed.turn_id, claimed.agent, asked.call_id,
                              f"{claimed.turn_id}:{asked.call_id}", self._held.workflow.deps,
                              resolver=self._held.workflow.secrets)  # fmt: skip

        async def invoke(connection: Any = None) -> Any:
            return await self._tried(tool, replace(context, connection=connection), arguments)

        async with tool.slots or nullcontext():  # before it is begun: what waits has not happened, and is not late
            try:
                return await self._asking.done(asked, invoke, ())
            except AgentFailed as error:
                if error.code != _TOO_LARGE:
                    raise
                did = "was undone" if asked.effect == "transactional" else "was done"
                return await self._asking.steps.fail(asked, "RESULT_TOO_LARGE", f"it {did}; {error.message}")

    async def _tried(self, tool: BoundTool, context: ToolContext, arguments: dict[str, Any]) -> Any:
        world = self._held.kit.world
        for attempt in range(1, tool.tool.retries + 1):
            try:
                return await self._once(tool, context, arguments)
            except HeliographError as error:
                if not error.recoverable and not isinstance(error, TurnTimedOut):
                    raise
            except Exception:  # noqa: S110  it is tried again; what the last try raises is told
                pass
            await world.sleep(backoff_seconds(attempt, jitter_of(context.idempotency_key, attempt)))
        return await self._once(tool, context, arguments)

    async def _once(self, tool: BoundTool, context: ToolContext, arguments: dict[str, Any]) -> Any:
        world = self._held.kit.world
        given = resolved(arguments, tool.tool.secrets, self._held.workflow.secrets)
        result = await world.within(tool.tool.timeout_seconds, tool.call(context, given, world.run_sync))
        return result if tool.misfits is None else check_result(tool.tool.name, tool.misfits, to_json(result))


async def _side_by_side(calls: Iterable[Coroutine[Any, Any, CallResult]]) -> list[CallResult]:
    """The results. Where one raises, or this is cancelled, none goes on when it is left: what they began is in doubt."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
