"""Heliograph as a system under test: the application of the agents file that CONFORMANCE_AGENTS names."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from heliograph import Context, Heliograph
from heliograph.errors import DelegationFailed, RecoverableError, ToolFailed
from heliograph.turn.step_options import Step


def application(agents: Mapping[str, Any]) -> Heliograph:
    """Return the application that an agents file describes; see `scenarios`."""
    made = Heliograph(agents["name"], routes=agents["routing"])
    for each in agents["agents"]:
        options: dict[str, Any] = {
            key: each[key]
            for key in ("activate_on", "emits", "updates", "on_request", "control_signals")
            if key in each
        }
        if not each.get("runs_if", True):
            options["when"] = _never
        made.agent(name=each["name"], **options)(_function(each["steps"]))
    return made


def _never(state: Any) -> bool:
    return False


def _function(steps: list[dict[str, Any]]) -> Callable[[Context], Awaitable[Any]]:
    async def run(ctx: Context) -> Any:
        output = None
        for step in steps:
            if "output" in step:
                output = step["output"]
            else:
                await _step(ctx, step)
        return output

    return run


async def _step(ctx: Context, step: Mapping[str, Any]) -> None:
    if "tool" in step:
        with suppress(ToolFailed):
            await ctx.step(Step(step["tool"], effect="idempotent"), _tool, dict(step))
    elif "delegate" in step:
        try:
            await ctx.delegate(step["delegate"], step["task"])
        except DelegationFailed:
            if step.get("required"):
                raise
    elif "report_error" in step:
        await ctx.report_error(step["report_error"], step["message"])
    elif "pause" in step:
        await ctx.pause(step["pause"])
    elif "busy" in step:
        if "if_task" not in step or step["if_task"] in ctx.task:
            raise RecoverableError(step["busy"], code="NETWORK_ERROR")
    else:
        raise ValueError(step["fail"])


async def _tool(step: Mapping[str, Any]) -> Any:
    if "error" in step:
        raise ValueError(step["error"])
    if "appends" in step:
        _append(step["appends"], step["tool"])
    while "waits_for" in step and not os.access(step["waits_for"], os.F_OK):  # noqa: ASYNC110  no event announces it
        await asyncio.sleep(0.05)
    return step.get("result")


def _append(file: str, line: str) -> None:
    with Path(file).open("a", encoding="utf-8") as opened:
        opened.write(f"{line}\n")


app = application(json.loads(Path(os.environ["CONFORMANCE_AGENTS"]).read_text(encoding="utf-8")))
