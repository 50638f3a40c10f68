"""One model call, with its signals: harness:start, deltas as they stream, text:complete, harness:end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from heliograph.agent_loop.reply_validation import validate_reply
from heliograph.agent_loop.request_marks import marks_of
from heliograph.codes import CIRCUIT_OPEN, MODEL_TIMEOUT, NETWORK_ERROR
from heliograph.definitions.circuit_breakers import CircuitBreaker
from heliograph.definitions.model_settings import breaker_of_model
from heliograph.error_text import format_exception, is_network_error, safe_repr, with_hint
from heliograph.errors import CircuitOpen, HarnessError, HeliographError, TurnTimedOut
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.reply_stream import reply_stream
from heliograph.execution.signal_buffer import SignalBuffer
from heliograph.ports import Harness, Message, ModelReply, ModelRequest, TextDelta, ThinkingDelta, ToolSpec
from heliograph.signals.error_payload import details_of
from heliograph.signals.model import Draft
from heliograph.signals.payload import check_json, cleaned, truncated
from heliograph.turn.calls import CallRequest
from heliograph.types import Json, JsonObject

log = logging.getLogger("heliograph.agent_loop")

_MESSAGE_MAX = 2000
_TARGET_BYTES_MAX = 200  # of the target of a circuit breaker

HarnessOf: TypeAlias = Callable[[Any], Harness]
_MakeDraft: TypeAlias = Callable[[str, Json, int | str], Draft]  # from a name, a payload and a parent


class Models:
    """The models of one turn: the model of its agent, then the fallbacks. harness_of: returns the harness of a model."""

    def __init__(self, owned: OwnedTurn, harness_of: HarnessOf):
        self._owned = owned
        self.harness_of = harness_of

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> ModelRequest:
        spec = self._owned.spec
        return ModelRequest(tuple(messages), spec.system, spec.output, tuple(tools), spec.max_output_tokens,
                            has_untrusted=self._owned.taint.may_have_read, temperature=spec.temperature)  # fmt: skip

    def marks(self, request: ModelRequest) -> dict[str, str]:
        """The marks that the record of the reply keeps; see `marks_of`."""
        return marks_of(self._owned.spec, request)

    async def call(self, request: ModelRequest, marks: Mapping[str, str] | None = None) -> ModelReply:
        """The reply of the first model that does not fail. marks: see `stream`.

        Raises HarnessError if all models fail, a recoverable one if there is any. Each failure emits harness:error.
        """
        failed: list[HarnessError] = []
        for model in self._owned.spec.models:
            self._owned.cancel_flag.check()
            try:
                return await self.stream(model, request, marks)
            except HarnessError as error:
                failed.append(error)
        raise decisive_failure(failed)

    # ── Circuit breakers ──

    @property
    def has_breakers(self) -> bool:
        """Whether one of the models has a circuit breaker."""
        return any(self._breaker_of(model) is not None for model in self._owned.spec.models)

    def guarded(self, request: CallRequest, model: Any) -> CallRequest:
        """The request of one attempt, with the circuit breaker of the model."""
        found = self._breaker_of(model)
        return request if found is None else replace(request, model=found[0], circuit_breaker=found[1])

    def rejected(self, error: CircuitOpen, model: Any) -> HarnessError:
        """The failure of a model that its circuit breaker does not admit. Emits harness:error."""
        name, owned = self._name_of(model), self._owned
        retry_after_ms = error.details.get("retry_after_ms", 0)
        failure = HarnessError(f"{name} was not called: {error.message}", code=CIRCUIT_OPEN, recoverable=True, tokens=0,
                               retry_after_seconds=retry_after_ms / 1000, details=error.details)  # fmt: skip
        failure.model = name
        payload = _error_payload(failure)
        owned.signals.add(
            Draft("harness:error", payload, owned.spec.name, owned.claimed.activation_id, owned.world.now())
        )
        return failure

    def _breaker_of(self, model: Any) -> tuple[str, CircuitBreaker] | None:
        """The name of a model and its circuit breaker; None if it has none."""
        settings = self._owned.workflow.model_settings
        if not any(each.circuit_breaker is not None for each in settings):
            return None
        name = self._name_of(model)
        breaker = breaker_of_model(settings, name)
        target = name.encode()[:_TARGET_BYTES_MAX].decode(errors="ignore")
        return None if breaker is None or not target else (target, breaker)

    def _name_of(self, model: Any) -> str:
        try:
            return cleaned(str(self.harness_of(model).model))
        except Exception:  # the call reports the reason
            return safe_repr(model)

    async def stream(self, model: Any, request: ModelRequest, marks: Mapping[str, str] | None = None) -> ModelReply:
        """The reply of one model. marks: of the request, for harness:end if the reply may end the turn, because then no record keeps them.

        Raises HarnessError, after harness:error, for every failure of the model, of its harness, or of creating the harness.
        """
        owned, signals, world = self._owned, self._owned.signals, self._owned.world
        seconds = owned.spec.model_call_timeout_seconds
        started = world.monotonic()

        def draft(name: str, payload: Json, parent: int | str) -> Draft:
            # checked here, so that the turn fails with a reason; the store would reject it later without one
            return Draft(name, check_json(payload), owned.spec.name, parent, world.now())

        try:
            found = self.harness_of(model)
            harness: Harness | HarnessError = found
            name = cleaned(str(found.model))
        except Exception as error:  # reported below, like the failure of a model
            harness, name = _failure(error), safe_repr(model)
        start_payload: Json = {"model": name, "input": truncated(request.prompt)}
        start = signals.add(draft("harness:start", start_payload, owned.claimed.activation_id))
        try:
            if isinstance(harness, HarnessError):
                raise harness
            with owned.trace.model_call(name, request) as call:
                try:
                    reply = await world.within(seconds, _streamed(harness, request, signals, start, draft))
                except TurnTimedOut as error:
                    raise HarnessError(f"{name} did not answer within {seconds:g} s", code=MODEL_TIMEOUT,
                                       recoverable=True) from error  # fmt: skip
                call.replied(reply)
        except Exception as error:
            failure = _failure(error)
            failure.model = name
            signals.add(draft("harness:error", _error_payload(failure), start))
            if failure is error:
                raise
            raise failure from error
        duration_ms = round((world.monotonic() - started) * 1000)
        _finish_reply(reply, signals, start, draft, duration_ms, None if reply.tool_calls else marks)
        return reply


def decisive_failure(failed: Sequence[HarnessError]) -> HarnessError:
    """The error of a call whose models have all failed: a recoverable one if there is any, and a failure before a rejection."""
    recoverable = [error for error in failed if error.recoverable]
    return min(recoverable, key=lambda error: error.code == CIRCUIT_OPEN) if recoverable else failed[-1]


def _error_payload(failure: HarnessError) -> JsonObject:
    message = safe_repr(with_hint(failure), _MESSAGE_MAX)
    payload: JsonObject = {"error": message, "code": cleaned(failure.code), "message": message}
    payload["recoverable"] = failure.recoverable
    if failure.details:
        payload["details"] = details_of(failure.details)
    return payload


async def _streamed(
    harness: Harness, request: ModelRequest, signals: SignalBuffer, start: int, draft: _MakeDraft
) -> ModelReply:
    received = {"text": "", "thinking": ""}

    def emit(kind: str, content: str) -> None:
        if content:
            signals.add_urgent(draft(f"{kind}:delta", {"content": content, "offset": len(received[kind])}, start))
            received[kind] += content

    async with reply_stream(harness, request) as chunks:
        async for chunk in chunks:
            match chunk:
                case TextDelta(content):
                    emit("text", cleaned(content))
                case ThinkingDelta(content):
                    emit("thinking", cleaned(content))
                case ModelReply():
                    reply = validate_reply(harness.model, chunk)
                    for kind, whole in (("text", reply.text), ("thinking", reply.thinking)):
                        if not whole.startswith(received[kind]):
                            raise HarnessError(
                                f"the harness for {harness.model} streamed another {kind} than its reply has"
                            )
                        emit(kind, whole[len(received[kind]) :])  # everything, if the harness does not stream
                    return reply
                case _:
                    raise HarnessError(f"the harness for {harness.model} yielded {safe_repr(chunk)}, which is none of "
                                       "TextDelta, ThinkingDelta and ModelReply")  # fmt: skip
    raise HarnessError(f"the harness for {harness.model} ended without a reply; it must yield a ModelReply last")


def _failure(error: Exception) -> HarnessError:
    """The failure of one model as a HarnessError, after which a fallback is called or the turn is deferred."""
    if isinstance(error, HarnessError):
        return error
    if isinstance(error, HeliographError):
        return HarnessError(error.message, code=error.code, hint=error.hint, recoverable=error.recoverable,
                            details=error.details)  # fmt: skip
    log.warning("a model's harness raised", exc_info=error)
    code = NETWORK_ERROR if is_network_error(error) else None
    return HarnessError(
        format_exception(error, _MESSAGE_MAX), code=code, recoverable=code is not None or isinstance(error, OSError)
    )


def _finish_reply(
    reply: ModelReply,
    signals: SignalBuffer,
    start: int,
    draft: _MakeDraft,
    duration_ms: int,
    marks: Mapping[str, str] | None,
) -> None:
    if reply.thinking:
        signals.add(draft("thinking:complete", {"content": reply.thinking}, start))
    if reply.text or not reply.tool_calls:
        signals.add(draft("text:complete", {"content": reply.text}, start))
    usage: dict[str, Any] = {"inputTokens": reply.input_tokens, "outputTokens": reply.output_tokens}
    if reply.cost_usd is not None:
        usage["costUsd"] = reply.cost_usd
    output: Json = reply.text if reply.output is None else reply.output
    payload: JsonObject = {"usage": usage, "output": truncated(output), "durationMs": duration_ms}
    if marks is not None:
        payload["marks"] = dict(marks)
    signals.add(draft("harness:end", payload, start))
