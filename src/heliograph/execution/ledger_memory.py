"""The default long-term memory, on PostgreSQL's full-text search, for applications without a memory of their own."""

from __future__ import annotations

from msgspec import Struct

from heliograph.error_text import safe_repr
from heliograph.errors import Conflict, Rejected
from heliograph.execution.step_recorder import store_call
from heliograph.ledger.client import Ledger
from heliograph.ports import MemoryHit
from heliograph.types import JsonObject


class LedgerMemory(Struct, frozen=True):
    """The default `heliograph.ports.Memory`, in the project's database: see 86_memories.sql."""

    ledger: Ledger

    async def store(self, project: str, memory_id: str, agent: str | None, text: str, metadata: JsonObject) -> None:
        """Store one memory. Raises Rejected (`memory_too_large`, `too_many_memories`, `conflict`)."""
        own = {key: value for key, value in metadata.items() if key != "trust"}
        item = {"memory_id": memory_id, "agent": agent, "text": text, "metadata": own, "trust": metadata.get("trust")}
        [answer] = await store_call(self.ledger.remember([item]))
        if answer["outcome"] == "rejected":
            raise Rejected(answer["message"], code=answer["code"])
        if answer["outcome"] == "conflict":
            raise Conflict(
                f"the id {safe_repr(memory_id)} belongs to another memory; choose another id", code="conflict"
            )

    async def search(self, project: str, agent: str | None, query: str, limit: int) -> list[MemoryHit]:
        rows = await store_call(self.ledger.recall(query, agent, limit))
        keys = ("memory_id", "text", "agent", "metadata", "rank", "trust")
        return [MemoryHit(*(row[key] for key in keys)) for row in rows]
