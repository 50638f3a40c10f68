"""What the execution of a turn requires of the agent loop: the function that runs an agent with a prompt, and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from heliograph.execution.context import Context
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.turn.calls import Journal
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class AgentOutput:
    """What came of it. is_partial: a limit was met before the model was done. limit: which one, as an error says it."""

    output: Json
    is_partial: bool = False
    limit: JsonObject | None = None


# Runs an agent that has a prompt: `heliograph.agent_loop.loop.run_agent_loop`. Raises what its harness raises, AgentFailed, Suspended.
AgentLoop = Callable[[OwnedTurn, Context, Journal], Awaitable[AgentOutput]]
