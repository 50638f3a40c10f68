"""The tracer of a process without telemetry: it creates no spans, and imports nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any

from heliograph.outbox_records import Callback
from heliograph.ports import ModelCallTrace, ModelReply, ModelRequest, ToolCallTrace
from heliograph.reactive.reaction import Reaction
from heliograph.records import Claimed, PendingSignal
from heliograph.types import Json, JsonObject


class _NullCall:
    def replied(self, reply: ModelReply) -> None: ...

    def returned(self, status: str, output: Json, error: JsonObject | None) -> None: ...


_CURRENT: AbstractContextManager[None] = nullcontext()
_CALL: AbstractContextManager[_NullCall] = nullcontext(_NullCall())


class NullTurn:
    """The turn of a process without telemetry; one object for all turns."""

    ids: tuple[str, str] | None = None

    def claimed(self) -> AbstractContextManager[None]:
        return _CURRENT

    def model_call(self, model: str, request: ModelRequest) -> AbstractContextManager[ModelCallTrace]:
        return _CALL

    def tool_call(self, call_id: str, tool: str, arguments: Json) -> AbstractContextManager[ToolCallTrace]:
        return _CALL

    def headers_of(self, call_id: str) -> dict[str, str]:
        return {}

    def delegated(self, call_id: str, agent: str, turn_id: str) -> None: ...

    def released(self, outcome: str) -> None: ...

    def reacted(self, reaction: Reaction) -> None: ...

    def ended(self, claimed: Claimed, outcome: str, error: JsonObject | None, usage: tuple[int, int]) -> None: ...


NULL_TURN = NullTurn()


class NullTracer:
    """Records nothing."""

    is_on = False

    def memory_of_start(self, headers: Iterable[tuple[bytes, bytes]] | None = None) -> dict[str, Any]:
        return {}

    def started(self, application: str, run_id: str, reaction: Reaction) -> None: ...

    def reacted(self, application: str, run_id: str, reaction: Reaction, pending: Sequence[PendingSignal]) -> None: ...

    def enqueued(
        self, run_id: str, memory: Mapping[str, Any], agent: str, turn_id: str, began_at: datetime
    ) -> None: ...

    def turn(self, claimed: Claimed, project: str) -> NullTurn:
        return NULL_TURN

    def headers_of(self, run_id: str, turn_id: str | None, memory: Mapping[str, Any]) -> dict[str, str]:
        return {}

    def called_back(self, callback: Callback, began_at: datetime, result: Mapping[str, Any]) -> None: ...

    def sent(
        self, url: str, headers: Mapping[str, str], began_at: datetime, attempt: int, status: int | None
    ) -> None: ...


NULL_TRACER = NullTracer()
