"""Any pydantic-ai model as a harness. Only this folder and `tools` import pydantic_ai; who asks no model loads it not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pydantic
from pydantic_ai import direct
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import (
    ModelRequest as ModelMessageRequest,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from heliograph.errors import HarnessError, SetupError
from heliograph.ports import (
    AssistantMessage,
    Chunk,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from heliograph.turn.untrusted import system_of, told_text
from heliograph.types import Json, JsonObject

_OUTPUT_TOOL = "final_result"
_RAW = "pydantic_ai"  # of an answer's `raw`: the messages of pydantic-ai, as JSON
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
                self._model,
                messages_of(request),
                model_request_parameters=_parameters(request),
                model_settings=settings_of(request, self._model),
            ) as events:
                async for event in events:
                    chunk = chunk_of(event)
                    if chunk is not None:
                        yield chunk
                response = events.get()
        except (AgentRunError, UserError) as error:
            raise harness_error(self.model, error) from error
        yield _reply(response, request)

    def cost_at_most(self, input_tokens: int, output_tokens: int) -> float | None:
        """See Harness."""
        return cost_at_most(self._model, input_tokens, output_tokens)


def harness_error(model: str, error: AgentRunError | UserError) -> HarnessError:
    """What pydantic-ai raises, as this runtime knows it: whether it may pass, and how long to leave the provider alone."""
    if isinstance(error, ModelAPIError):
        return HarnessError(f"{model}: {error}", recoverable=_is_passing(error),
                            retry_after_seconds=error.retry_after or 0.0,
                            tokens=0 if isinstance(error, ModelHTTPError) else None)  # fmt: skip
    if isinstance(error, UserError):
        return HarnessError(f"{model} cannot be asked this: {error}")
    return HarnessError(
        f"{model} answered what cannot be used: {error}", recoverable=isinstance(error, UnexpectedModelBehavior)
    )


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


def messages_of(request: ModelRequest, *, has_system: bool = True) -> list[ModelMessage]:
    """The conversation as pydantic-ai has it: neighbouring messages to the model are parts of one."""
    found: list[ModelMessage] = []
    system = system_of(request) if has_system else None
    parts: list[Any] = [SystemPromptPart(system)] if system else []
    for message in request.messages:
        match message:
            case UserMessage(content):
                parts.append(UserPromptPart(content))
            case ToolMessage(call_id, tool, _, is_error):
                # as text: pydantic-ai reads more into lists and objects, such as links to pictures to be fetched
                told = told_text(message)
                parts.append(ToolReturnPart(tool, told, call_id, outcome="failed" if is_error else "success"))
            case AssistantMessage():
                if parts:
                    found.append(ModelMessageRequest(parts=parts))
                found += _answered(message)
                parts = _untaken(found[-1])
    return [*found, ModelMessageRequest(parts=parts)] if parts else found


def _answered(message: AssistantMessage) -> list[ModelMessage]:
    """An answer as the provider gave it, where that is known: some want to see their thinking again, signed."""
    if isinstance(message.raw, dict) and _RAW in message.raw:
        return ModelMessagesTypeAdapter.validate_python(message.raw[_RAW])
    text: list[Any] = [TextPart(message.text)] if message.text else []
    calls: list[Any] = list(message.tool_calls)  # with arguments that are an object, or the text that was none
    return [ModelResponse(parts=[*text, *(ToolCallPart(call.tool, call.arguments, call.id) for call in calls)])]


def _untaken(answer: ModelMessage) -> list[Any]:
    """The results of structured answers that came together with calls: the model has to give it again, after them."""
    calls = answer.parts if isinstance(answer, ModelResponse) else ()
    return [
        ToolReturnPart(part.tool_name, "Not taken: other calls were not answered yet. Give it again.", part.tool_call_id)
        for part in calls if isinstance(part, ToolCallPart) and part.tool_name == _OUTPUT_TOOL
    ]  # fmt: skip


def raw_of(messages: list[ModelMessage]) -> JsonObject:
    """Messages as an AssistantMessage carries them, for a harness of pydantic-ai alone."""
    return {_RAW: ModelMessagesTypeAdapter.dump_python(messages, mode="json")}


def definitions(request: ModelRequest) -> list[ToolDefinition]:
    return [
        ToolDefinition(name=t.name, description=t.description, parameters_json_schema=t.parameters)
        for t in request.tools
    ]


def settings_of(request: ModelRequest, model: object) -> ModelSettings | None:
    """How long the answer may be, where the request says so; a model's own setting holds where it is smaller."""
    if request.output_tokens_max is None:
        return None
    own = getattr(model, "settings", None) or {}
    return ModelSettings(max_tokens=min(request.output_tokens_max, own.get("max_tokens") or request.output_tokens_max))


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = definitions(request)
    if request.output is None:
        return ModelRequestParameters(function_tools=tools)
    schema = pydantic.TypeAdapter(request.output).json_schema()
    tool = ToolDefinition(name=_OUTPUT_TOOL, description="Give the answer in this form.", parameters_json_schema=schema)
    return ModelRequestParameters(
        function_tools=tools, output_mode="tool", output_tools=[tool], allow_text_output=False
    )


def chunk_of(event: object) -> Chunk | None:
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
    calls = tuple(
        call_of(part)
        for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name != _OUTPUT_TOOL
    )  # fmt: skip
    try:
        output = None if request.output is None or calls else _validated(response, request.output)
    except HarnessError as error:
        error.tokens = response.usage.total_tokens or None
        raise
    raw = raw_of([response]) if request.tools else None  # only a conversation with tools goes on
    return ModelReply(text, output, thinking, response.usage.input_tokens, response.usage.output_tokens, calls,
                      cost_of(response), raw, response.finish_reason == "length")  # fmt: skip


def call_of(part: ToolCallPart) -> ToolCall:
    """Its arguments are an object, or the text that is none: whoever carries the call out tells the model so."""
    try:
        arguments: Json = part.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        arguments = part.args
    return ToolCall(part.tool_call_id, part.tool_name, arguments)


def cost_of(response: ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):  # nobody knows what this model costs
        return None


def cost_at_most(model: Model, input_tokens: int, output_tokens: int) -> float | None:
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    return cost_of(ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=model.system,
                                 provider_url=model.base_url))  # fmt: skip


def _validated(response: ModelResponse, kind: Any) -> Any:
    """Raises HarnessError, recoverable: asked again, a model may well answer in form."""
    for part in response.parts:
        if isinstance(part, ToolCallPart) and part.tool_name == _OUTPUT_TOOL:
            adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
            try:
                return adapter.dump_python(adapter.validate_python(part.args_as_dict()), mode="json")
            except (pydantic.ValidationError, ValueError) as error:
                raise HarnessError(f"the model's answer does not fit {getattr(kind, '__name__', kind)}: {error}",
                                   recoverable=True) from error  # fmt: skip
    raise HarnessError("the model answered with text where a structured answer was asked for", recoverable=True)
