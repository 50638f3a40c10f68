"""Run an agent once: its function or its prompt, within its timeout; every failure becomes an event."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from heliograph.errors import HarnessError, HeliographError, InvalidInput, TurnTimedOut, shown, told
from heliograph.ports import Harness, ModelReply, ModelRequest, TextDelta
from heliograph.reactive.agent import AgentSpec
from heliograph.reactive.reaction import fold_changes
from heliograph.reactive.state import check_size, to_json
from heliograph.reactive.template import substitute
from heliograph.reactive.workflow import Workflow
from heliograph.records import Claimed
from heliograph.signals.model import Draft
from heliograph.signals.payload import check_json
from heliograph.turn.events import Acted, Raised
from heliograph.types import Json
from heliograph.worker.context import Context
from heliograph.worker.voice import Voice
from heliograph.world import World

log = logging.getLogger("heliograph.worker")

_MESSAGE_MAX = 2000


async def act(
    claimed: Claimed, spec: AgentSpec, workflow: Workflow, voice: Voice, context: Context, world: World,
    harness_of: Callable[[Any], Harness],
) -> tuple[Acted | Raised, tuple[int, int]]:  # fmt: skip
    """The outcome of one run of the agent, and the tokens it used. Cancellation passes through."""
    usage = (0, 0)
    try:
        if spec.prompt is not None:
            output, usage = await world.within(spec.timeout_seconds, _ask(spec, voice, context, world, harness_of))
        elif inspect.iscoroutinefunction(spec.run):
            output = to_json(await world.within(spec.timeout_seconds, spec.run(context)))
        else:
            assert spec.run is not None
            output = to_json(await world.within(spec.timeout_seconds, _run_plain(spec.run, context, world)))
        check_size(output, f"what agent {spec.name} returned", "/output")
        _try_update(workflow, spec, claimed, output)
        return Acted(output), usage
    except TurnTimedOut:
        return Raised("timeout", "TIMEOUT", f"agent {spec.name} ran longer than {spec.timeout_seconds:g} s"), usage
    except HeliographError as error:
        code = error.code if error.code.isupper() else "ACTION_FAILED"
        return Raised("failed", code, shown(error.message, _MESSAGE_MAX), error.recoverable), usage
    except (
        Exception,
        SystemExit,
        KeyboardInterrupt,
    ) as error:  # what ends a program ends the agent's turn here, not the worker
        log.warning("agent %s raised in %s", spec.name, claimed.turn_id, exc_info=True)
        return Raised("failed", "ACTION_FAILED", told(error, _MESSAGE_MAX)), usage


async def _run_plain(function: Callable[[Any], Any], context: Context, world: World) -> Any:
    """A plain function's result; one that only wraps an async function answers what is still to be awaited."""
    result = await world.run_sync(function, context)
    return await result if inspect.isawaitable(result) else result


def _try_update(workflow: Workflow, spec: AgentSpec, claimed: Claimed, output: Json) -> None:
    """Raise now what a wrong output would raise in the reaction, while the turn can still end as failed."""
    try:
        workflow.shape.load(fold_changes(workflow.reducers, spec, claimed.run.state, output))
    except InvalidInput as error:
        raise HeliographError(f"what agent {spec.name} returned does not fit: {error.message}") from error


async def _ask(
    spec: AgentSpec, voice: Voice, context: Context, world: World, harness_of: Callable[[Any], Harness]
) -> tuple[Json, tuple[int, int]]:
    """Ask the model and say what it says: harness:start, deltas as they come, text:complete, harness:end."""
    harness = harness_of(spec.model)
    prompt = spec.prompt(context) if callable(spec.prompt) else fill(spec.prompt or "", context)
    started = world.monotonic()

    def draft(name: str, payload: Json, parent: int | str) -> Draft:
        # checked here, where it ends this turn with a reason: a store that refuses it later ends it with none
        return Draft(name, check_json(payload), spec.name, parent, world.now())

    start = voice.say(draft("harness:start", {"model": harness.model, "input": prompt}, context.activation_id))
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
    voice.say(draft("harness:end", {"usage": usage, "output": output, "durationMs": duration_ms}, start))
    return output, (reply.input_tokens, reply.output_tokens)


def fill(template: str, context: Context) -> str:
    """`template` with {state.key}, {signal.name} and {signal.payload} filled in; values are never templates (S8).

    Raises InvalidInput (`template_undefined`) naming what there is.
    """
    values: dict[str, Any] = {f"state.{key}": value for key, value in context.document.items()}
    values |= {"signal.name": context.signal.name, "signal.payload": context.signal.payload}
    return substitute(template, values)
