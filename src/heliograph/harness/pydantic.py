"""Any pydantic-ai model as a harness. The only file that imports pydantic_ai; nobody who asks no model loads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pydantic
from pydantic_ai import direct
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.messages import (
    ModelRequest as ModelMessageRequest,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.tools import ToolDefinition

from heliograph.errors import HarnessError, SetupError
from heliograph.ports import Chunk, ModelReply, ModelRequest, TextDelta, ThinkingDelta

_OUTPUT_TOOL = "final_result"
_PASSING = (408, 409, 425, 429)


class PydanticHarness:
    """One model of any provider that pydantic-ai knows, by object or by name such as `openai-chat:gpt-5`.

    Raises SetupError for a name that means nothing, or whose provider is not installed or has no key.
    """

    def __init__(self, model: str | Model):
        self._is_ours = not isinstance(model, Model)
        try:
            self._model = model if isinstance(model, Model) else _without_hidden_retries(infer_model(model))
        except (UserError, ImportError, ValueError, KeyError) as error:
            raise SetupError(f"the model {model} cannot be used: {error}", code="unknown_model",
                             hint="name it provider:model, install its extra (heliograph[openai], [anthropic], [google]) "
                                  "and set the provider's key") from error  # fmt: skip

    @property
    def model(self) -> str:
        return self._model.model_name

    async def close(self) -> None:
        """Close the provider's connections, where they were opened here and not by whoever gave the model."""
        client: Any = getattr(self._model, "client", None)
        if self._is_ours and hasattr(client, "close"):
            await client.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            async with direct.model_request_stream(
                self._model, _messages(request), model_request_parameters=_parameters(request)
            ) as events:
                async for event in events:
                    chunk = _chunk(event)
                    if chunk is not None:
                        yield chunk
                response = events.get()
        except ModelAPIError as error:
            raise HarnessError(f"{self.model}: {error}", recoverable=_is_passing(error),
                               retry_after_seconds=error.retry_after or 0.0) from error  # fmt: skip
        except (AgentRunError, UserError) as error:
            raise HarnessError(f"{self.model} answered what cannot be used: {error}") from error
        yield _reply(response, request)


def _is_passing(error: ModelAPIError) -> bool:
    """Whether the same request may well succeed later: the provider is busy or away, and does not object to it."""
    if not isinstance(error, ModelHTTPError):
        return True  # it could not be reached, or broke off
    hint = error.provider_retry_hint
    return error.status_code in _PASSING or error.status_code >= 500 if hint is None else hint


def _without_hidden_retries(model: Model) -> Model:
    """Providers' clients try again by themselves, unseen and unpaid for here; one request is to be one call."""
    client: Any = getattr(model, "client", None)
    if hasattr(client, "max_retries"):
        client.max_retries = 0
    return model


def _messages(request: ModelRequest) -> list[ModelMessage]:
    parts: list[Any] = [SystemPromptPart(request.system)] if request.system else []
    return [ModelMessageRequest(parts=[*parts, UserPromptPart(request.prompt)])]


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    if request.output is None:
        return ModelRequestParameters()
    schema = pydantic.TypeAdapter(request.output).json_schema()
    tool = ToolDefinition(name=_OUTPUT_TOOL, description="Give the answer in this form.", parameters_json_schema=schema)
    return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)


def _chunk(event: object) -> Chunk | None:
    content = (
        event.part if isinstance(event, PartStartEvent) else event.delta if isinstance(event, PartDeltaEvent) else None
    )
    match content:
        case TextPart(content=text) | TextPartDelta(content_delta=text) if text:
            return TextDelta(text)
        case ThinkingPart(content=text) | ThinkingPartDelta(content_delta=text) if text:
            return ThinkingDelta(text)
    return None


def _reply(response: ModelResponse, request: ModelRequest) -> ModelReply:
    thinking = "".join(part.content for part in response.parts if isinstance(part, ThinkingPart))
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    output = None if request.output is None else _validated(response, request.output)
    return ModelReply(text, output, thinking, response.usage.input_tokens, response.usage.output_tokens)


def _validated(response: ModelResponse, kind: Any) -> Any:
    for part in response.parts:
        if isinstance(part, ToolCallPart) and part.tool_name == _OUTPUT_TOOL:
            adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
            try:
                return adapter.dump_python(adapter.validate_python(part.args_as_dict()), mode="json")
            except (pydantic.ValidationError, ValueError) as error:
                raise HarnessError(
                    f"the model's answer does not fit {getattr(kind, '__name__', kind)}: {error}"
                ) from error
    raise HarnessError("the model answered with text where a structured answer was asked for")
