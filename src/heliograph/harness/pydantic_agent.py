"""Use a pydantic-ai Agent as a harness: with its instructions, tools and output it behaves like one model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pydantic
from pydantic_ai import Agent, AgentRunResult, AgentRunResultEvent, DeferredToolRequests, ExternalToolset
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model

from heliograph.error_text import safe_repr
from heliograph.errors import HarnessError, InvalidInput
from heliograph.harness.call_ids import with_unique_ids
from heliograph.harness.costs import cost_at_most, cost_of, settings_of
from heliograph.harness.messages import call_of, definitions, messages_of, raw_of, withdrawn
from heliograph.harness.provider_failures import check_complete, harness_error, is_cut
from heliograph.harness.streamed_reply import chunk_of
from heliograph.ports import Chunk, ModelReply, ModelRequest, TextDelta, ThinkingDelta
from heliograph.turn.untrusted import system_of
from heliograph.types import Json


class AgentHarness:
    """A harness that calls `agent`, a pydantic_ai.Agent, with `deps` for its tools and instructions.

    The model may call the tools of the Heliograph agent, which run durably as usual, and the agent's own tools. These run
    within the model call: they are not recorded, and a repeated model call runs them again. A limit on output tokens
    applies to each request that the agent sends to its model.
    """

    def __init__(self, agent: Agent[Any, Any], *, deps: Any = None):
        if not hasattr(agent, "run_stream_events"):
            raise InvalidInput(
                f"the argument of AgentHarness must be a pydantic_ai.Agent, not {safe_repr(agent)}", code="wrong_type"
            )
        self._agent = agent
        self._deps = deps

    @property
    def model(self) -> str:
        model = self._agent.model
        name = model if isinstance(model, str) else getattr(model, "model_name", None)
        return str(self._agent.name or name or "agent")

    def cost_at_most(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return the price in US dollars of one response of the agent's model; None if it is unknown."""
        model = self._agent.model
        return cost_at_most(model, input_tokens, output_tokens) if isinstance(model, Model) else None

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Run the agent once. Raises HarnessError."""
        output: Any = self._agent.output_type if request.output is None else request.output
        provider = self._agent.model.system if isinstance(self._agent.model, Model) else None
        history = with_unique_ids(messages_of(request, has_system=False), provider)
        tools = [*definitions(request), *withdrawn(request)]  # the worker executes no call of a withdrawn tool
        text, thinking, result = "", "", None
        try:
            async with self._agent.run_stream_events(
                message_history=history, instructions=system_of(request), deps=self._deps,
                output_type=[output, DeferredToolRequests] if tools else output,
                toolsets=[ExternalToolset(tools)] if tools else None,
                model_settings=settings_of(request, self._agent.model),
            ) as events:  # fmt: skip
                async for event in events:
                    if isinstance(event, AgentRunResultEvent):
                        result = event.result
                    elif (chunk := chunk_of(event)) is not None:
                        text += chunk.content if isinstance(chunk, TextDelta) else ""
                        thinking += chunk.content if isinstance(chunk, ThinkingDelta) else ""
                        yield chunk
        except (AgentRunError, UserError) as error:
            failure = harness_error(self.model, error)
            failure.tokens = None  # unknown: earlier requests of the same agent run may have succeeded
            raise failure from error
        if result is None:
            raise HarnessError(f"agent {self.model} ended without a result; a retry may succeed", recoverable=True)
        responses = [message for message in result.new_messages() if isinstance(message, ModelResponse)]
        for last in responses[-1:]:
            check_complete(self.model, last, request, sum(response.usage.total_tokens for response in responses))
        yield _reply(result, responses, request, text, thinking)


def _reply(
    result: AgentRunResult[Any], responses: Sequence[ModelResponse], request: ModelRequest, text: str, thinking: str
) -> ModelReply:
    """Build one reply from the whole run of the agent; its text is everything that the agent streamed."""
    costs = [cost for cost in map(cost_of, responses) if cost is not None]
    if responses and is_cut(responses[-1], request):
        return ModelReply(text, thinking=thinking, input_tokens=result.usage.input_tokens, output_tokens=result.usage.output_tokens,
                          cost_usd=sum(costs) if costs else None, is_cut=True)  # fmt: skip
    calls = tuple(map(call_of, result.output.calls)) if isinstance(result.output, DeferredToolRequests) else ()
    output: Json = None if calls else pydantic.TypeAdapter(Any).dump_python(result.output, mode="json")
    return ModelReply(
        text, output=None if output == text else output, thinking=thinking, input_tokens=result.usage.input_tokens,
        output_tokens=result.usage.output_tokens, tool_calls=calls, cost_usd=sum(costs) if costs else None,
        raw=raw_of(result.new_messages()) if request.tools else None,
    )  # fmt: skip
