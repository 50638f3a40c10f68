"""The type of the agent loop, which runs an agent with a prompt; the execution of a turn receives it from the worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from heliograph.execution.call_replay import CallReplay
from heliograph.execution.context import Context
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class AgentOutput:
    """The output of an agent loop. is_partial: a limit cut its work short. limit: that limit, as an error object."""

    output: Json
    is_partial: bool = False
    limit: JsonObject | None = None


# Runs an agent that has a prompt: `heliograph.agent_loop.loop.run_agent_loop`. Raises the errors of its harness, AgentFailed, Suspended.
AgentLoop = Callable[[OwnedTurn, Context, CallReplay], Awaitable[AgentOutput]]
