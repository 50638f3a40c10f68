"""Ask a model one question, and say what it says: harness:start, deltas as they come, text:complete, harness:end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from heliograph.codes import MODEL_TIMEOUT
from heliograph.errors import HarnessError, HeliographError, TurnTimedOut, shown, told
from heliograph.ports import Harness, Message, ModelReply, ModelRequest, TextDelta, ThinkingDelta, ToolSpec
from heliograph.signals.model import Draft
from heliograph.signals.payload import carried, check_json
from heliograph.types import Json
from heliograph.worker.held import Held
from heliograph.worker.voice import Voice

_MESSAGE_MAX = 2000
_Drafted = Callable[[str, Json, int | str], Draft]


async def ask(held: Held, request: ModelRequest) -> ModelReply:
    """The answer of the agent's model; of the next one, where it has several and one fails.

    Raises HarnessError where all fail, each after its harness:error: one that may pass, if there is one.
    """
    failed: list[HarnessError] = []
    for model in models_of(held):
        held.halt.check()
        try:
            return await ask_one(held, held.kit.harness_of(model), request)
        except HarnessError as error:
            failed.append(error)
    raise next((error for error in failed if error.recoverable), failed[-1])


def models_of(held: Held) -> Sequence[Any]:
    return held.spec.model if isinstance(held.spec.model, list | tuple) else [held.spec.model]


def request_of(
    held: Held, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, has_untrusted: bool = False
) -> ModelRequest:
    spec = held.spec
    return ModelRequest(tuple(messages), spec.system, spec.output, tuple(tools), spec.max_output_tokens, has_untrusted)


async def ask_one(held: Held, harness: Harness, request: ModelRequest) -> ModelReply:
    """The answer of one model. Raises what it raises, after its harness:error."""
    voice, world, seconds = held.voice, held.kit.world, held.spec.model_timeout_seconds
    started = world.monotonic()

    def draft(name: str, payload: Json, parent: int | str) -> Draft:
        # checked here, where it ends this turn with a reason: a store that refuses it later ends it with none
        return Draft(name, check_json(payload), held.spec.name, parent, world.now())

    said: Json = {"model": harness.model, "input": carried(request.prompt)}
    start = voice.say(draft("harness:start", said, held.claimed.activation_id))
    try:
        try:
            reply = await world.within(seconds, _streamed(harness, request, voice, start, draft))
        except TurnTimedOut as error:
            raise HarnessError(f"{harness.model} did not answer within {seconds:g} s", code=MODEL_TIMEOUT,
                               recoverable=True) from error  # fmt: skip
    except Exception as error:
        failure = error if isinstance(error, HeliographError) else HarnessError(told(error, _MESSAGE_MAX))
        message = shown(failure.message, _MESSAGE_MAX)
        payload: Json = {"error": message, "code": failure.code, "message": message, "recoverable": failure.recoverable}
        voice.say(draft("harness:error", payload, start))
        raise
    _finish_reply(reply, voice, start, draft, round((world.monotonic() - started) * 1000))
    return reply


async def _streamed(harness: Harness, request: ModelRequest, voice: Voice, start: int, draft: _Drafted) -> ModelReply:
    heard = {"text": "", "thinking": ""}

    def say(kind: str, content: str) -> None:
        if content:
            voice.say_now(draft(f"{kind}:delta", {"content": content, "offset": len(heard[kind])}, start))
            heard[kind] += content

    async with AsyncExitStack() as stack:
        chunks = harness.stream(request)
        if hasattr(chunks, "aclose"):  # what is left unfinished lets go of its connection here, and not some time later
            stack.push_async_callback(chunks.aclose)
        async for chunk in chunks:
            match chunk:
                case TextDelta(content):
                    say("text", content)
                case ThinkingDelta(content):
                    say("thinking", content)
                case ModelReply():
                    _check_reply(harness.model, chunk, heard)
                    say("text", chunk.text[len(heard["text"]) :])  # what a harness that does not stream has not said
                    say("thinking", chunk.thinking[len(heard["thinking"]) :])
                    return chunk
                case _:
                    raise HarnessError(f"the harness for {harness.model} yielded {shown(chunk)}, which is none of "
                                       "TextDelta, ThinkingDelta and ModelReply")  # fmt: skip
    raise HarnessError(f"the harness for {harness.model} ended without a reply")


def _check_reply(model: str, reply: ModelReply, heard: Mapping[str, str]) -> None:
    """Raises HarnessError for an answer that cannot be gone on with, or is not the one that was streamed."""
    for kind, whole in (("text", reply.text), ("thinking", reply.thinking)):
        if not whole.startswith(heard[kind]):
            raise HarnessError(f"the harness for {model} streamed another {kind} than its reply has")
    ids = [call.id for call in reply.tool_calls]
    if twice := next((each for n, each in enumerate(ids) if each in ids[:n]), None):
        raise HarnessError(f"{model} called two tools under one id, {shown(twice)}", recoverable=True)


def _finish_reply(reply: ModelReply, voice: Voice, start: int, draft: _Drafted, duration_ms: int) -> None:
    if reply.thinking:
        voice.say(draft("thinking:complete", {"content": reply.thinking}, start))
    if reply.text or not reply.tool_calls:
        voice.say(draft("text:complete", {"content": reply.text}, start))
    usage: dict[str, Any] = {"inputTokens": reply.input_tokens, "outputTokens": reply.output_tokens}
    if reply.cost_usd is not None:
        usage["costUsd"] = reply.cost_usd
    output: Json = reply.text if reply.output is None else reply.output
    voice.say(draft("harness:end", {"usage": usage, "output": carried(output), "durationMs": duration_ms}, start))
