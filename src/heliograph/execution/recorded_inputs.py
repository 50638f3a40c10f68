"""Record the inputs of a turn beside its world and its ledger; and make the seams of a recorded turn."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from heliograph.definitions.tool import Tool
from heliograph.execution.packed_commit import packed_claim
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.recorded_ledger import RecordedLedger
from heliograph.execution.recorded_world import RecordedWorld
from heliograph.execution.reply_stream import reply_stream
from heliograph.execution.run_serializer import RunSerializer
from heliograph.execution.seams import Seams
from heliograph.execution.tape import Tape, error_item, is_unrecorded, unrecorded
from heliograph.execution.turn_inputs import TurnInputs
from heliograph.ports import Chunk, Harness, ModelReply, ModelRequest, TextDelta, ThinkingDelta
from heliograph.records import Claimed, RunView
from heliograph.secrets import Resolver
from heliograph.signals.model import Draft
from heliograph.tools.toolbox import Toolbox
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.types import JsonObject, NotGiven
from heliograph.world.seam import World


def recorded_seams(services: ProjectServices, claimed: Claimed) -> Seams:
    """The seams of a claimed turn whose run is recorded."""
    data = packed_claim(claimed, services.ledger.project, is_observed=services.world.is_observed)
    return with_tape(services, claimed, Tape(claimed.epoch, data))


def with_tape(services: ProjectServices, claimed: Claimed, tape: Tape) -> Seams:
    """The seams of a claimed turn, recorded on a tape."""
    ledger, inputs = RecordedLedger(services.ledger, claimed, tape), RecordedInputs(tape, services.inputs)
    return Seams(RecordedWorld(services.world, tape), ledger, inputs)


class RecordedInputs(TurnInputs):
    """Reads the inputs of one turn from `inner`, and records them."""

    _conversations: Conversations | None = None

    def __init__(self, tape: Tape, inner: TurnInputs):
        self._tape = tape
        self._inner = inner

    async def step(
        self, world: World, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> CallResult:
        number = self._tape.begin("step", request.call_id)
        try:
            with unrecorded():
                result = await self._inner.step(world, request, function, args)
        except Exception as error:
            self._tape.raised(number, error)
            raise
        self._tape.answer(number, {"status": result.status, "output": result.output, "error": result.error})
        return result

    def harness(self, harness_of: Callable[[Any], Harness], model: Any) -> Harness:
        try:
            harness = self._inner.harness(harness_of, model)
            name = str(harness.model)
        except Exception as error:
            self._tape.read(("harness", None, error_item(error)))
            raise
        self._tape.read(("harness", name))
        kind = _PricedHarness if getattr(harness, "cost_at_most", None) is not None else _RecordedHarness
        self._conversations = self._conversations or Conversations()
        return kind(harness, name, self._tape, self._conversations)

    async def tools(self, toolbox: Toolbox, toolset: Any) -> Sequence[Tool]:
        number = self._tape.begin("tools")
        try:
            tools = await self._inner.tools(toolbox, toolset)
        except Exception as error:
            self._tape.raised(number, error)
            raise
        self._tape.answer(number, [_tool_item(tool) for tool in tools])
        return tools

    def problem_of_credentials(self, names: Sequence[str], secrets: Resolver | None) -> str | None:
        problem = self._inner.problem_of_credentials(names, secrets)
        self._tape.read(("credentials", problem))
        return problem

    def newest(self, serializer: RunSerializer, view: RunView) -> tuple[RunView, str | None]:
        newest, follows = self._inner.newest(serializer, view)
        entry = None if newest is view else ("view", newest) if follows is None else ("view", newest, follows)
        self._tape.read(entry)
        return newest, follows

    async def clean_up(self, work: Callable[[], Awaitable[None]]) -> None:
        number = self._tape.begin("cleanup")
        with unrecorded():
            await self._inner.clean_up(work)
        self._tape.answer(number, None)

    def stopping(self, reason: str) -> None:
        self._tape.read(("stop", reason))

    def progress(self, draft: Draft) -> None:
        if is_unrecorded():  # a function that a replay does not run reports it
            self._tape.read(("progress", draft.payload, draft.at))

    def observer(self, world: World) -> World:
        return world.unrecorded if isinstance(world, RecordedWorld) else world


class _RecordedHarness:
    def __init__(self, harness: Harness, name: str, tape: Tape, conversations: Conversations):
        self._harness = harness
        self.model = name
        self._tape = tape
        self._conversations = conversations

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        asked = self._conversations.item(request)
        number = self._tape.begin("model", self.model, hash_of_request(request), asked)
        try:
            async with reply_stream(self._harness, request) as chunks:
                async for chunk in chunks:
                    self._record(number, chunk)
                    yield chunk
        except Exception as error:
            self._tape.raised(number, error)
            raise

    def _record(self, number: int, chunk: Any) -> None:
        match chunk:
            case TextDelta(content):
                self._tape.answer(number, content, "text")
            case ThinkingDelta(content):
                self._tape.answer(number, content, "thinking")
            case ModelReply():
                self._tape.answer(number, msgspec.to_builtins(chunk), "reply")
            case _:
                self._tape.gap = f"the harness of {self.model} yielded a value of another type"


class _PricedHarness(_RecordedHarness):
    def cost_at_most(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return the price of a call in dollars, and record it."""
        cost: float | None = self._harness.cost_at_most(input_tokens, output_tokens)  # type: ignore[attr-defined]
        if not is_unrecorded():
            self._tape.read(("cost", cost))
        return cost


class Conversations:
    """Writes the requests of one part: of a conversation that continues, only the new messages."""

    def __init__(self) -> None:
        self._before: dict[str, Any] = {"messages": []}

    def item(self, request: ModelRequest) -> dict[str, Any]:
        """The request without the parts that it has in common with the one before it."""
        whole = request_item(request)
        before, self._before = self._before, whole
        item = {key: value for key, value in whole.items() if key not in before or before[key] != value}
        old, new = before["messages"], whole["messages"]
        if "messages" in item and old and new[: len(old)] == old:
            item["messages"] = {"after": len(old), "new": new[len(old) :]}
        return item

    def whole(self, item: dict[str, Any]) -> dict[str, Any]:
        """The inverse of `item`."""
        messages: Any = item.get("messages", self._before["messages"])
        if isinstance(messages, dict):
            messages = [*self._before["messages"][: messages["after"]], *messages["new"]]
        self._before = {**self._before, **item, "messages": messages}
        return self._before


def request_item(request: ModelRequest) -> dict[str, Any]:
    """A model request as JSON. Messages are redacted before they reach a model, as they are here."""
    return {
        "system": request.system, "messages": [_message_item(message) for message in request.messages],
        "tools": msgspec.to_builtins(request.tools), "output": None if request.output is None else repr(request.output),
        "output_tokens_max": request.output_tokens_max, "temperature": request.temperature,
    }  # fmt: skip


def hash_of_request(request: ModelRequest) -> str:
    """The hash that identifies a request among those of an agent."""
    return hashlib.sha256(msgspec.json.encode(request_item(request), order="deterministic")).hexdigest()[:16]


def _message_item(message: Any) -> JsonObject:
    item = msgspec.to_builtins(message)
    if not item.get("files", True):  # most messages have none, and earlier recordings have no key for them
        del item["files"]
    return {"role": type(message).__name__.removesuffix("Message").lower(), **item}


def _tool_item(tool: Tool) -> JsonObject:
    item: JsonObject = {
        "name": tool.name, "description": tool.description, "parameters": tool.parameters, "effect": tool.effect,
        "approval": tool.approval if isinstance(tool.approval, bool) else None, "in_doubt": tool.in_doubt, "trusted": tool.trusted,
    }  # fmt: skip
    if not isinstance(tool.timeout_seconds, NotGiven):
        item["timeout_seconds"] = tool.timeout_seconds
    return item
