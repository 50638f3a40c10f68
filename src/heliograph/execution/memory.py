"""The default long-term memory, on PostgreSQL's full-text search, for applications without a memory of their own."""

from __future__ import annotations

from typing import Any

from heliograph.errors import Conflict, InvalidInput, Rejected, repr_of, safe_repr
from heliograph.execution.step_recorder import store_call
from heliograph.ledger.client import Ledger
from heliograph.ports import MemoryHit
from heliograph.signals.payload import check_json
from heliograph.types import JsonObject

QUERY_BYTES_MAX = 8192
RECALL_MAX = 100


class LedgerMemory:
    """`heliograph.ports.Memory` in the ledger: see 86_memories.sql."""

    def __init__(self, ledger: Ledger):
        self._ledger = ledger

    async def store(self, project: str, memory_id: str, agent: str | None, text: str, metadata: JsonObject) -> None:
        """Raises Rejected (`memory_too_large`, `too_many_memories`, `conflict`)."""
        kept = {key: value for key, value in metadata.items() if key != "trust"}
        item = {"memory_id": memory_id, "agent": agent, "text": text, "metadata": kept, "trust": metadata.get("trust")}
        [answer] = await store_call(self._ledger.remember([item]))
        if answer["outcome"] == "refused":
            raise Rejected(answer["message"], code=answer["code"])
        if answer["outcome"] == "conflict":
            raise Conflict(f"the id {safe_repr(memory_id)} is another memory's", code="conflict")

    async def search(self, project: str, agent: str | None, query: str, limit: int) -> list[MemoryHit]:
        rows = await store_call(self._ledger.recall(query, agent, limit))
        keys = ("memory_id", "text", "agent", "metadata", "rank", "trust")
        return [MemoryHit(*(row[key] for key in keys)) for row in rows]


def check_memory(text: Any) -> str:
    """Raises InvalidInput: `required_field`, or the codes of `check_json`."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"a memory is a text, not {safe_repr(repr_of(text))}", code="required_field", path="/text")
    check_json(text, "/text")
    return text


def check_search(query: Any, limit: Any) -> None:
    """Raises InvalidInput: `wrong_type`, `too_large`, `out_of_range`, or the codes of `check_json`."""
    if not isinstance(query, str):
        raise InvalidInput(f"a query is a text, not {safe_repr(repr_of(query))}", code="wrong_type", path="/query")
    check_json(query, "/query")
    if len(query.encode()) > QUERY_BYTES_MAX:
        raise InvalidInput(f"a query has at most {QUERY_BYTES_MAX} bytes", code="too_large", path="/query")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= RECALL_MAX:
        raise InvalidInput(f"limit is a whole number from 1 to {RECALL_MAX}, not {safe_repr(repr_of(limit))}",
                           code="out_of_range", path="/limit")  # fmt: skip
