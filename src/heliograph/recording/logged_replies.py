"""The replies of models as the log of a run has them: for turns that nobody recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from heliograph.errors import HarnessError
from heliograph.execution.recorded_inputs import request_item
from heliograph.execution.signal_buffer import BATCH_SECONDS
from heliograph.ports import Chunk, ModelReply, ModelRequest, TextDelta, ThinkingDelta
from heliograph.recording.detached_world import never
from heliograph.recording.expected_signals import DELTAS
from heliograph.signals.model import Signal
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One call of a model. start: its first signal. signals: those of its reply or of its failure.

    pauses: the positions of the deltas after which another turn has committed.
    """

    start: Signal
    signals: Sequence[Signal]
    pauses: Collection[int] = ()

    @property
    def prompt(self) -> Json:
        payload: Any = self.start.payload
        return payload.get("input") if isinstance(payload, dict) else None

    @property
    def marks(self) -> Json:
        """The marks of the request, if the reply may have ended its turn; None in the log of an earlier version."""
        ends: list[Any] = [signal.payload for signal in self.signals if signal.name == "harness:end"]
        return ends[0].get("marks") if ends and isinstance(ends[0], dict) else None

    @property
    def error(self) -> HarnessError | None:
        """The failure of the call."""
        for signal in self.signals:
            if signal.name == "harness:error":
                payload: Any = signal.payload
                return HarnessError(str(payload.get("message")), code=payload.get("code"), recoverable=bool(payload.get("recoverable")),
                                    details=payload.get("details"))  # fmt: skip
        return None

    async def deltas(self) -> AsyncGenerator[Chunk, None]:
        """The pieces in which the reply was streamed, as far as they were logged one by one, in as many commits as then."""
        for signal in self.signals:
            payload: Any = signal.payload
            if signal.name == "text:delta":
                yield TextDelta(payload["content"])
            elif signal.name == "thinking:delta":
                yield ThinkingDelta(payload["content"])
            if signal.seq in self.pauses:
                await asyncio.sleep(2 * BATCH_SECONDS)  # virtual time, until the buffer has sent the delta

    def reply(self, output: Json, *, is_cut: bool) -> ModelReply:
        """The reply, if it was the last one of its turn. output: the structured output of the turn."""
        text = thinking = ""
        usage: dict[str, Any] = {}
        for signal in self.signals:
            payload: Any = signal.payload
            match signal.name:
                case "text:complete":
                    text = payload["content"]
                case "thinking:complete":
                    thinking = payload["content"]
                case "harness:end":
                    usage = payload.get("usage", {})
        return ModelReply(text, output=output, thinking=thinking, input_tokens=usage.get("inputTokens", 0),
                          output_tokens=usage.get("outputTokens", 0), cost_usd=usage.get("costUsd"), is_cut=is_cut)  # fmt: skip


def logged_calls(signals: Sequence[Signal]) -> list[LoggedCall]:
    """The calls of models that one turn has made and that have ended: a worker that died has left others."""
    found: dict[str, list[Signal]] = {s.id: [] for s in signals if s.name == "harness:start"}
    starts = {s.id: s for s in signals if s.name == "harness:start"}
    for signal in signals:
        if signal.parent in found:
            found[signal.parent].append(signal)
    pauses = {one.seq for one, other in pairwise(signals) if one.seq + 1 < other.seq and one.name in DELTAS}
    return [LoggedCall(starts[key], each, pauses) for key, each in found.items()
            if any(s.name in ("harness:end", "harness:error") for s in each)]  # fmt: skip


class ReplyJudge(Protocol):
    """Gives the replies, and compares the requests."""

    def next_model_call(self, name: str, request: JsonObject) -> LoggedCall | None:
        """The call of the log that begins now; None if there is none, which is a divergence. request: as an item."""
        ...

    def compare_request(self, name: str, call: LoggedCall, request: ModelRequest) -> bool:
        """Compare a request with what the log and the ledger have of it; return whether the turn may continue."""
        ...

    def reply_to(self, call: LoggedCall) -> ModelReply | None:
        """The reply to a call that did not fail; None if it cannot be read, which is a divergence."""
        ...


class LoggedHarness:
    """A model that gives the replies of the log. Its price is nothing: the budgets of an ended turn are not spent again."""

    def __init__(self, name: str, judge: ReplyJudge):
        self.model = name
        self._judge = judge

    def cost_at_most(self, input_tokens: int, output_tokens: int) -> float | None:
        return 0.0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        call = self._judge.next_model_call(self.model, request_item(request))
        if call is None or not self._judge.compare_request(self.model, call, request):
            await never()
        async with aclosing(call.deltas()) as chunks:
            async for chunk in chunks:
                yield chunk
        if (error := call.error) is not None:
            raise error
        reply = self._judge.reply_to(call)
        if reply is None:
            await never()
        yield reply
