"""The memory of a simulation, for applications without a memory of their own."""

from __future__ import annotations

import re

from heliograph.ports import MemoryHit
from heliograph.types import JsonObject


class WordsMemory:
    """A `heliograph.memory.Memory` that finds the memories which share words with the query: the most first, and then the oldest."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[str | None, str, JsonObject]] = {}

    async def store(self, _project: str, memory_id: str, agent: str | None, text: str, metadata: JsonObject) -> None:
        self._stored[memory_id] = (agent, text, metadata)

    async def search(self, _project: str, agent: str | None, query: str, limit: int) -> list[MemoryHit]:
        hits = []
        for memory_id, (owner, text, metadata) in self._stored.items():
            rank = len(_words(query) & _words(text))
            if rank and (agent is None or owner in (None, agent)):
                own = {key: value for key, value in metadata.items() if key != "trust"}
                trust = "untrusted" if metadata.get("trust") == "untrusted" else "trusted"
                hits.append(MemoryHit(memory_id, text, owner, own, float(rank), trust))
        return sorted(hits, key=lambda hit: -hit.rank)[:limit]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
