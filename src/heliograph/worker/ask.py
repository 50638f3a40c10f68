"""Ask a model once, and say what it says: harness:start, deltas as they come, text:complete, harness:end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.errors import HarnessError, HeliographError, shown, told
from heliograph.ports import ModelReply, ModelRequest, TextDelta
from heliograph.reactive.template import substitute
from heliograph.signals.model import Draft
from heliograph.signals.payload import carried, check_json
from heliograph.types import Json
from heliograph.worker.context import Context
from heliograph.worker.held import Held
from heliograph.worker.voice import Voice

_MESSAGE_MAX = 2000


async def ask(held: Held, context: Context) -> tuple[Json, tuple[int, int]]:
    """The model's answer and the tokens it took. Raises what the harness raises, after harness:error."""
    spec, voice, world = held.spec, held.voice, held.kit.world
    harness = held.kit.harness_of(spec.model)
    prompt = spec.prompt(context) if callable(spec.prompt) else fill(spec.prompt or "", context)
    started = world.monotonic()

    def draft(name: str, payload: Json, parent: int | str) -> Draft:
        # checked here, where it ends this turn with a reason: a store that refuses it later ends it with none
        return Draft(name, check_json(payload), spec.name, parent, world.now())

    start = voice.say(draft("harness:start", {"model": harness.model, "input": carried(prompt)}, context.activation_id))
    offsets = {"text": 0, "thinking": 0}
    try:
        async for chunk in harness.stream(ModelRequest(prompt, spec.system, spec.output)):
            if isinstance(chunk, ModelReply):
                return _finish_reply(chunk, voice, start, draft, round((world.monotonic() - started) * 1000))
            kind = "text" if isinstance(chunk, TextDelta) else "thinking"
            if chunk.content:
                voice.say_now(draft(f"{kind}:delta", {"content": chunk.content, "offset": offsets[kind]}, start))
                offsets[kind] += len(chunk.content)
        raise HarnessError(f"the harness for {harness.model} ended without a reply")
    except Exception as error:
        failure = error if isinstance(error, HeliographError) else HarnessError(told(error, _MESSAGE_MAX))
        message = shown(failure.message, _MESSAGE_MAX)
        payload: Json = {"error": message, "code": failure.code, "message": message, "recoverable": failure.recoverable}
        voice.say(draft("harness:error", payload, start))
        raise


def _finish_reply(
    reply: ModelReply, voice: Voice, start: int, draft: Callable[[str, Json, int | str], Draft], duration_ms: int
) -> tuple[Json, tuple[int, int]]:
    if reply.thinking:
        voice.say(draft("thinking:complete", {"content": reply.thinking}, start))
    voice.say(draft("text:complete", {"content": reply.text}, start))
    output: Json = reply.text if reply.output is None else reply.output
    usage: Json = {"inputTokens": reply.input_tokens, "outputTokens": reply.output_tokens}
    voice.say(draft("harness:end", {"usage": usage, "output": carried(output), "durationMs": duration_ms}, start))
    return output, (reply.input_tokens, reply.output_tokens)


def fill(template: str, context: Context) -> str:
    """`template` with {state.key}, {signal.name} and {signal.payload} filled in; values are never templates (S8).

    Raises InvalidInput (`template_undefined`) naming what there is.
    """
    values: dict[str, Any] = {f"state.{key}": value for key, value in context.document.items()}
    values |= {"signal.name": context.signal.name, "signal.payload": context.signal.payload}
    return substitute(template, values)
