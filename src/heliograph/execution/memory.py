"""The long-term memory as one turn uses it: each store and each search is a step, so it happens once."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from heliograph.codes import MEMORY_ERROR
from heliograph.error_text import format_exception, is_recoverable, repr_of, safe_repr
from heliograph.errors import HeliographError, InvalidInput, ToolFailed
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.call_requests import CallRequests
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.ports import Memory, MemoryHit
from heliograph.signals.payload import check_json
from heliograph.signals.values import to_json
from heliograph.turn.calls import CallRequest
from heliograph.turn.untrusted import UNTRUSTED
from heliograph.types import JsonObject

QUERY_BYTES_MAX = 8192
RECALL_MAX = 100
_MEMORY_ID_MAX = 200  # a caller may choose a long turn id; its end distinguishes it from other turn ids


class TurnMemory:
    """Stores and finds the memories of an agent, from one turn of it. See `Context.remember` and `Context.recall`."""

    def __init__(self, memory: Memory, owned: OwnedTurn, replay: CallReplay, requests: CallRequests):
        self._memory = memory
        self._project = owned.project
        self._agent = owned.claimed.agent
        self._turn_id = owned.claimed.turn_id
        self._taint = owned.taint
        self._replay = replay
        self._requests = requests

    def remember(self, text: str, metadata: dict[str, Any]) -> Coroutine[Any, Any, None]:
        self._requests.check_may_wait("remember")
        _check_memory(text)
        given = to_json(metadata, "/metadata")
        assert isinstance(given, dict)
        if self._taint.is_tainted:
            given["trust"] = UNTRUSTED
        request = self._requests.step("remember", "idempotent", arguments=(text, given))
        memory_id = f"{self._turn_id}-{request.call_id}"[-_MEMORY_ID_MAX:]

        async def store() -> None:
            with _memory_errors():
                await self._memory.store(self._project, memory_id, self._agent, text, given)

        return self._replay.step(request, store, ())

    def recall(self, query: str, limit: int, *, everywhere: bool) -> Coroutine[Any, Any, list[MemoryHit]]:
        self._requests.check_may_wait("recall")
        _check_search(query, limit)
        agent = None if everywhere else self._agent
        return self._recall(self._requests.step("recall", "pure", arguments=(agent, query, limit)), agent, query, limit)

    async def _recall(self, request: CallRequest, agent: str | None, query: str, limit: int) -> list[MemoryHit]:
        async def search() -> list[JsonObject]:
            with _memory_errors():
                return [asdict(hit) for hit in await self._memory.search(self._project, agent, query, limit)]

        hits = [MemoryHit(**hit) for hit in await self._replay.step(request, search, ())]
        if any(hit.trust == UNTRUSTED for hit in hits):
            self._taint.read("memory")
        return hits


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Raise every failure of the memory as MEMORY_ERROR, which may pass if the memory's own exception may."""
    try:
        yield
    except Exception as error:
        message, reason = (
            (error.message, error.code) if isinstance(error, HeliographError) else (format_exception(error), None)
        )
        failed = ToolFailed(message, code=MEMORY_ERROR, details=None if reason is None else {"reason": reason})
        failed.recoverable = is_recoverable(error)
        raise failed from error


def _check_memory(text: Any) -> None:
    """Check the text of a memory. Raises InvalidInput: `required_field`, or the codes of `check_json`."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(
            f"a memory must be a text, not {safe_repr(repr_of(text))}", code="required_field", path="/text"
        )
    check_json(text, "/text")


def _check_search(query: Any, limit: Any) -> None:
    """Check a search. Raises InvalidInput: `wrong_type`, `too_large`, `out_of_range`, or the codes of `check_json`."""
    if not isinstance(query, str):
        raise InvalidInput(f"a query must be a text, not {safe_repr(repr_of(query))}", code="wrong_type", path="/query")
    check_json(query, "/query")
    if len(query.encode()) > QUERY_BYTES_MAX:
        raise InvalidInput(f"a query has at most {QUERY_BYTES_MAX} bytes", code="too_large", path="/query")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= RECALL_MAX:
        raise InvalidInput(f"limit must be a whole number from 1 to {RECALL_MAX}, not {safe_repr(repr_of(limit))}",
                           code="out_of_range", path="/limit")  # fmt: skip
