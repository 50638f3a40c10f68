"""Use any pydantic-ai model as a harness.

Only this package and `tools` import pydantic_ai. Applications without model agents never load it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import direct
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.settings import ModelSettings

from heliograph.errors import SetupError
from heliograph.harness.call_ids import with_unique_ids
from heliograph.harness.costs import cost_at_most, settings_of
from heliograph.harness.messages import OUTPUT_TOOL, call_of, definitions, messages_of, raw_of, sendable, withdrawn
from heliograph.harness.provider_failures import check_complete, harness_error, is_cut
from heliograph.harness.streamed_reply import StreamedReply, chunk_of
from heliograph.harness.structured_output import OutputMismatch, output_tool, validated_output
from heliograph.ports import Chunk, ModelReply, ModelRequest

# Our extra for each client library; the providers that speak OpenAI's protocol (Azure, Ollama, OpenRouter, ...) need OpenAI's library.
_EXTRAS = {"openai": "openai", "anthropic": "anthropic", "google-genai": "google", "boto3": "bedrock", "cohere": "cohere",
           "groq": "groq", "mistralai": "mistral", "huggingface_hub": "huggingface"}  # fmt: skip
_PACKAGE = re.compile(r"install the `([\w.-]+)` package")  # how pydantic-ai names a missing package
_TRIES = 3


def _how_to_install(model: str, reason: str) -> str:
    """Return the pip command with our own extra if there is one: the extras of pydantic-ai ignore our version bounds."""
    package = _PACKAGE.search(reason)
    named = (extra for extra in _EXTRAS.values() if model.startswith(extra))
    extra = _EXTRAS.get(package[1]) if package else next(named, None)
    if extra is not None:
        return f"pip install 'heliograph[{extra}]'"
    return "no extra of Heliograph contains this provider's library: install the library beside 'heliograph[models]'"


class PydanticHarness:
    """A harness for one model of any provider that pydantic-ai supports: an object, or a name such as `openai-chat:gpt-5`.

    Raises SetupError: unknown_model (no such name, or no key of the provider), no_model_library (library not installed).
    """

    def __init__(self, model: str | Model):
        self._is_ours = not isinstance(model, Model)
        try:
            self._model = model if isinstance(model, Model) else _without_hidden_retries(infer_model(model))
        except ImportError as error:
            raise SetupError(f"the model {model} cannot be used: the library of its provider is not installed",
                             code="no_model_library", hint=_how_to_install(str(model), str(error))) from error  # fmt: skip
        except (UserError, ValueError, KeyError) as error:
            raise SetupError(f"the model {model} cannot be used: {error}", code="unknown_model",
                             hint="name it provider:model, install its extra (heliograph[openai], [anthropic], [google]) "
                                  "and set the provider's key") from error  # fmt: skip

    @property
    def model(self) -> str:
        return self._model.model_name

    async def close(self) -> None:
        """Close the provider's connections, unless the application passed in the model and so owns them."""
        client: Any = getattr(self._model, "client", None)
        if self._is_ours and hasattr(client, "close"):
            await client.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Call the model. A structured output that is invalid is sent back with the problem, for at most `_TRIES` tries in all.

        There is one try only if the request is metered: each further one would need a reservation of its own.
        Raises HarnessError.
        """
        messages, streamed = messages_of(request), StreamedReply()
        for is_last in (*[False] * (_TRIES - 1), True):
            try:
                async with direct.model_request_stream(
                    self._model,
                    with_unique_ids(messages, self._model.system),
                    model_request_parameters=_parameters(request),
                    model_settings=_settings(request, self._model),
                ) as events:
                    async for event in events:
                        chunk = chunk_of(event)
                        if chunk is not None:
                            yield streamed.add(chunk)
                    response = events.get()
            except (AgentRunError, UserError) as error:
                raise harness_error(self.model, error) from error
            streamed.count(response)
            check_complete(self.model, response, request, streamed.tokens)
            try:
                reply = _reply(response, request, streamed)
            except OutputMismatch as mismatch:
                response_message = sendable(response)
                mismatch.tokens = streamed.tokens or None
                is_empty = not any(isinstance(part, TextPart | ToolCallPart) for part in response_message.parts)
                if is_last or is_empty or request.is_metered:
                    raise  # providers reject a conversation that contains an empty message
                messages += [response_message, mismatch.feedback]
            else:
                yield reply
                return

    def cost_at_most(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return the price in US dollars of a call with this many tokens; None if it is unknown."""
        return cost_at_most(self._model, input_tokens, output_tokens)


def _without_hidden_retries(model: Model) -> Model:
    """Turn off the retries of the provider's client, which no budget and no log would see: one request is one model call."""
    client: Any = getattr(model, "client", None)
    if hasattr(client, "max_retries"):
        client.max_retries = 0
    return model


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = definitions(request)
    if request.output is None:
        return ModelRequestParameters(function_tools=[*tools, *withdrawn(request)])
    return ModelRequestParameters(
        function_tools=tools, output_mode="tool", output_tools=[output_tool(request.output)], allow_text_output=False
    )


def _settings(request: ModelRequest, model: object) -> ModelSettings | None:
    """Return the settings of a request. They forbid tool calls once the tools are withdrawn."""
    settings = settings_of(request, model)
    return ModelSettings(**(settings or {}), tool_choice="none") if request.withdrawn else settings


def _reply(response: ModelResponse, request: ModelRequest, streamed: StreamedReply) -> ModelReply:
    """Build the reply from a complete response and from all that was streamed. Raises OutputMismatch."""
    if is_cut(response, request):
        return ModelReply(streamed.text, thinking=streamed.thinking, input_tokens=streamed.input_tokens,
                          output_tokens=streamed.output_tokens, cost_usd=streamed.cost, is_cut=True)  # fmt: skip
    calls = tuple(
        call_of(part)
        for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name != OUTPUT_TOOL
    )  # fmt: skip
    output = None if request.output is None or calls else validated_output(response, request.output)
    raw = raw_of([response]) if request.tools else None  # only a conversation with tools continues
    return ModelReply(
        streamed.text,
        output=output,
        thinking=streamed.thinking,
        input_tokens=streamed.input_tokens,
        output_tokens=streamed.output_tokens,
        tool_calls=calls,
        cost_usd=streamed.cost,
        raw=raw,
    )
