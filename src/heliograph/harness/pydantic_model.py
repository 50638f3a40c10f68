"""Any pydantic-ai model as a harness. Only this folder and `tools` import pydantic_ai; who asks no model loads it not."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pydantic
from pydantic_ai import direct
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelRequest as ModelMessageRequest,
)
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from heliograph.errors import HarnessError, SetupError, safe_repr
from heliograph.harness.call_ids import with_unique_ids
from heliograph.harness.messages import OUTPUT_TOOL, call_of, definitions, messages_of, raw_of, sent, withdrawn
from heliograph.ports import Chunk, ModelReply, ModelRequest, TextDelta, ThinkingDelta
from heliograph.signals.payload import check_json

_EXTRAS = ("openai", "anthropic", "google")  # of ours, as providers' names begin
_PACKAGE = re.compile(r"install the `([\w.-]+)` package")  # how pydantic-ai names a missing package
_WRAPPED = "response"  # the one field of an answer that is no object
_TRIES = 3
_MISMATCH_MAX = 2000
_PASSING = (408, 409, 425, 429)


def _how_to_install(model: str, reason: str) -> str | None:
    """The pip command with our own extra, where there is one: pydantic-ai names its own, which ignores our version bounds."""
    extra = next((extra for extra in _EXTRAS if model.startswith(extra)), None)
    if extra is not None:
        return f"pip install 'heliograph[{extra}]'"
    package = _PACKAGE.search(reason)
    return None if package is None else f"pip install 'heliograph[models]' {package[1]}"


class PydanticHarness:
    """One model of any provider that pydantic-ai knows, by object or by name such as `openai-chat:gpt-5`.

    Raises SetupError for a name that means nothing, or whose provider is not installed or has no key.
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
        """Close the provider's connections, where they were opened here and not by whoever gave the model."""
        client: Any = getattr(self._model, "client", None)
        if self._is_ours and hasattr(client, "close"):
            await client.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """A structured answer that does not fit is given back with what is wrong with it, `_ATTEMPTS` times in all.

        Not so where what it may use is metered: each further question would have to be reserved.
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
            streamed.take(response)
            check_whole(self.model, response, request, streamed.tokens)
            try:
                reply = _reply(response, request, streamed)
            except OutputMismatch as misfit:
                answered = sent(response)
                misfit.tokens = streamed.tokens or None
                is_empty = not any(isinstance(part, TextPart | ToolCallPart) for part in answered.parts)
                if is_last or is_empty or request.is_metered:
                    raise  # a message without content, providers do not take back
                messages += [answered, misfit.feedback]
            else:
                yield reply
                return

    def cost_at_most(self, input_tokens: int, output_tokens: int) -> float | None:
        """See Harness."""
        return cost_at_most(self._model, input_tokens, output_tokens)


class StreamedReply:
    """What was said and used in the answers to one question so far: of the last, and of those that did not fit before."""

    def __init__(self) -> None:
        self.text, self.thinking, self.costs = "", "", list[float]()
        self.input_tokens = self.output_tokens = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, chunk: Chunk) -> Chunk:
        self.text += chunk.content if isinstance(chunk, TextDelta) else ""
        self.thinking += chunk.content if isinstance(chunk, ThinkingDelta) else ""
        return chunk

    def take(self, response: ModelResponse) -> None:
        self.input_tokens += response.usage.input_tokens
        self.output_tokens += response.usage.output_tokens
        if (cost := cost_of(response)) is not None:
            self.costs.append(cost)


class OutputMismatch(HarnessError):
    """A structured answer that does not fit; `told` says so to the model."""

    def __init__(self, message: str, feedback: Sequence[ToolReturnPart | UserPromptPart]):
        super().__init__(message, recoverable=True)
        self.feedback = ModelMessageRequest(parts=feedback)


def is_cut(response: ModelResponse, request: ModelRequest) -> bool:
    """Whether it ended at the bound that its question had, and says all the same what it had to say until then."""
    return response.finish_reason == "length" and request.output_tokens_max is not None


def check_whole(model: str, response: ModelResponse, request: ModelRequest, tokens: int) -> None:
    """Raises HarnessError for an answer that is not the whole: half a text is no answer, and half a call another call.

    tokens: what was used for it, with the answers that came before it on the way.
    """
    try:
        _check_whole(model, response, request)
    except HarnessError as error:
        error.tokens = tokens or None
        raise


def _check_whole(model: str, response: ModelResponse, request: ModelRequest) -> None:
    why = (response.provider_details or {}).get("finish_reason") or response.finish_reason
    if response.finish_reason == "length" and not is_cut(response, request):
        raise HarnessError(f"{model} was cut off at its limit of tokens ({why}); give it a larger one, in the settings of a "
                           "pydantic-ai model, or less to do")  # fmt: skip
    if response.finish_reason == "content_filter":
        raise HarnessError(f"{model} refused, or was cut off by its provider's filter ({why})")
    if response.finish_reason == "error" or response.state != "complete" or not _is_ended(response):
        told = f"it says {why}" if _is_ended(response) else "it does not say that this is all"
        raise HarnessError(f"{model} broke off in the middle of its answer: {told}", recoverable=True)


def _is_ended(response: ModelResponse) -> bool:
    """Whether the provider said that this is all: a connection that just ends looks like the end of an answer."""
    if response.provider_url is None:
        return True  # no provider, but a model of the application's own
    if response.finish_reason == "stop" and response.provider_name != "xai":  # the one that keeps no word of its own
        # pydantic-ai itself puts "stop" where a stream of OpenAI's chat protocol ended without a word
        return "finish_reason" in (response.provider_details or {})
    return bool(response.finish_reason or (response.provider_details or {}).get("finish_reason"))


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


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = definitions(request)
    if request.output is None:
        return ModelRequestParameters(function_tools=[*tools, *withdrawn(request)])
    schema = _form_of(request.output)
    tool = ToolDefinition(name=OUTPUT_TOOL, description="Give the answer in this form.", parameters_json_schema=schema)
    return ModelRequestParameters(
        function_tools=tools, output_mode="tool", output_tools=[tool], allow_text_output=False
    )


def _form_of(kind: Any) -> dict[str, Any]:
    """Its JSON Schema, as the arguments of a tool: what is no object is put into one."""
    schema = pydantic.TypeAdapter(kind).json_schema()
    if schema.get("type") == "object":
        return schema
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    return {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED], **definitions}


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


def _reply(response: ModelResponse, request: ModelRequest, streamed: StreamedReply) -> ModelReply:
    """Raises Misfit. Its text is all that was streamed of it, and what was not; of one that was cut, that is all there is."""
    cost = sum(streamed.costs) if streamed.costs else None
    if is_cut(response, request):
        return ModelReply(
            streamed.text, None, streamed.thinking, streamed.input_tokens, streamed.output_tokens, (), cost, is_cut=True
        )
    calls = tuple(
        call_of(part)
        for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name != OUTPUT_TOOL
    )  # fmt: skip
    output = None if request.output is None or calls else _validated(response, request.output)
    raw = raw_of([response]) if request.tools else None  # only a conversation with tools goes on
    return ModelReply(
        streamed.text, output, streamed.thinking, streamed.input_tokens, streamed.output_tokens, calls, cost, raw
    )


def cost_of(response: ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):  # nobody knows what this model costs
        return None


def cost_at_most(model: Model, input_tokens: int, output_tokens: int) -> float | None:
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    return cost_of(ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=model.system,
                                 provider_url=model.base_url))  # fmt: skip


def settings_of(request: ModelRequest, model: object) -> ModelSettings | None:
    """How long the answer may be, where the request says so; a model's own setting holds where it is smaller."""
    if request.output_tokens_max is None:
        return None
    own = getattr(model, "settings", None) or {}
    return ModelSettings(max_tokens=min(request.output_tokens_max, own.get("max_tokens") or request.output_tokens_max))


def _settings(request: ModelRequest, model: object) -> ModelSettings | None:
    """The settings of a request; they forbid tool calls where no tool is offered any more."""
    found = settings_of(request, model)
    return ModelSettings(**(found or {}), tool_choice="none") if request.withdrawn else found


def _validated(response: ModelResponse, kind: Any) -> Any:
    """Raises Misfit: told what is wrong, a model may well answer in form."""
    name = getattr(kind, "__name__", kind)
    given = [part for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name == OUTPUT_TOOL]
    if not given:
        ask = UserPromptPart(f"Give the answer by calling {OUTPUT_TOOL}, and not as text.")
        raise OutputMismatch("the model answered with text where a structured answer was asked for", [ask])
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
    try:
        value: Any = given[0].args_as_dict()
        if _WRAPPED in value and adapter.json_schema().get("type") != "object":
            value = value[_WRAPPED]
        return check_json(adapter.dump_python(adapter.validate_python(value), mode="json"))
    except Exception as error:  # whatever its validators raise
        why = safe_repr(str(error), _MISMATCH_MAX)
        told = f"It does not fit: {why}\nGive it again."
        parts = [ToolReturnPart(OUTPUT_TOOL, told, part.tool_call_id, outcome="failed") for part in given]
        raise OutputMismatch(f"the model's answer does not fit {name}: {why}", parts) from error
