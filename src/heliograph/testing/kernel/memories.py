"""The twin of 86_memories.sql. It searches for words only, and knows no English: a word is found as it is written."""

from __future__ import annotations

import re
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.ids import wrong_id
from heliograph.testing.kernel.jsonb import ABSENT, Refusal, get, get_text
from heliograph.testing.kernel.limits import limits, rejection
from heliograph.testing.kernel.tables import Row, Transaction, interval, timestamp

_WORD = re.compile(r"\w+")
_BETWEEN = re.compile('[ "\t\n\r\f\v\u3000]+')
_TTL_SECONDS_MAX = 3_162_240_000


def remember(tx: Transaction, items: Any) -> list[Row]:
    limited, listed = limits(tx), j.elements(items)
    for item in listed:
        if (wrong := _wrong_memory(item)) is not None:
            raise Refusal("22023", wrong)
    answers: dict[int, Row] = {}
    for n, item in sorted(enumerate(listed), key=lambda pair: str(get_text(pair[1], "memory_id")).encode()):
        answers[n] = _known(tx, item) or _refuse(tx, item, limited) or _keep(tx, item)
    return [{"memory_id": _raw_id(item), **answers[n]} for n, item in enumerate(listed)]


def _raw_id(item: Any) -> Any:
    found = get(item, "memory_id")
    return None if found is ABSENT else found


def _keep(tx: Transaction, item: Any) -> Row:
    seconds, memory_id = j.parse_float(get_text(item, "ttl_seconds")), get_text(item, "memory_id")
    tx.insert(tx.tables.memories, memory_id, {
        "memory_id": memory_id, "agent": get_text(item, "agent"), "text": get_text(item, "text"), "metadata": _metadata(item),
        "is_untrusted": get_text(item, "trust") == "untrusted",
        "created_at": tx.now, "expires_at": None if seconds is None else tx.now + interval(seconds),
    })  # fmt: skip
    return {"outcome": "remembered"}


def _metadata(item: Any) -> Row:
    found = get(item, "metadata")
    return found if isinstance(found, dict) else {}


def _wrong_memory(item: Any) -> str | None:
    if (wrong := wrong_id("a memory id", get_text(item, "memory_id"))) is not None:
        return wrong
    text, agent, seconds = get(item, "text"), get(item, "agent"), get(item, "ttl_seconds")
    if not isinstance(text, str) or not text.strip():
        return "a memory has a text"
    if agent not in (ABSENT, None) and not (isinstance(agent, str) and 1 <= len(agent.encode()) <= 200):
        return "the agent of a memory has 1 to 200 bytes, or is null"
    if not (get(item, "metadata") in (ABSENT, None) or isinstance(get(item, "metadata"), dict)):
        return "the metadata of a memory is an object"
    if seconds not in (ABSENT, None) and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1e-6 <= seconds <= _TTL_SECONDS_MAX
    ):
        return "ttl_seconds must be above 0 and at most 100 years, or null"
    return None


def _known(tx: Transaction, item: Any) -> Row | None:
    row = tx.tables.memories.get(get_text(item, "memory_id"))
    if row is None:
        return None
    given = (get_text(item, "agent"), get_text(item, "text"), _metadata(item))
    return {"outcome": "duplicate" if given == (row["agent"], row["text"], row["metadata"]) else "conflict"}


def _refuse(tx: Transaction, item: Any, limited: Row) -> Row | None:
    agent, metadata = get_text(item, "agent"), get_text(item, "metadata") or ""
    size, most = len(str(get_text(item, "text")).encode()) + len(metadata.encode()), limited["memory_bytes_max"]
    if size > most:
        return rejection(
            "memory_too_large", f"the memory has {size} bytes; at most {most} are allowed: keep what matters of it"
        )
    count, most = sum(row["agent"] == agent for row in tx.tables.memories.values()), limited["memories_max"]
    if count >= most:
        whose = "the project" if agent is None else f"agent {agent}"
        return rejection("too_many_memories", f"{count} memories of {whose} are kept; at most {most} are allowed: forget some, "
                       "or give them a time to live")  # fmt: skip
    return None


def recall(tx: Transaction, query: str | None, agent: str | None, limit: int | None) -> list[Row]:
    if limit is None or not 1 <= limit <= 1000:
        raise Refusal("22023", f"limit must be between 1 and 1000, not {limit}")
    if len((query or "").encode()) > 8192:
        raise Refusal("22023", "a query has at most 8192 bytes")
    wanted, parts = set(_words(query or "")), _parts(query or "")
    newest = sorted(tx.tables.memories.values(), key=lambda row: (-row["created_at"], row["memory_id"].encode()))
    if agent is None:
        newest = newest[: limits(tx)["memories_max"]]
    found = [
        {**row, "rank": _rank(_words(row["text"]), wanted)} for row in newest
        if (agent is None or row["agent"] in (agent, None)) and (row["expires_at"] is None or row["expires_at"] > tx.now)
        and (
            (wanted <= set(_words(row["text"])) and (wanted or not (query or "").strip()))
            or (parts and all(part in row["text"] for part in parts))
        )
    ]  # fmt: skip
    found.sort(key=lambda row: -row["rank"])
    return [
        {key: row[key] for key in ("memory_id", "agent", "text", "metadata", "rank")}
        | {"created_at": timestamp(row["created_at"]), "trust": "untrusted" if row["is_untrusted"] else "trusted"}
        for row in found[:limit]
    ]


def _rank(words: list[str], wanted: set[str]) -> float:
    """ts_rank of a disjunction: each word twice, as it is and as English has it."""
    weights = [sum(0.1 / n**2 for n in range(1, 2 * words.count(word) + 1)) for word in wanted]
    return round(sum(weights) / 1.64493406685 / len(weights), 4) if weights else 0


def _parts(query: str) -> list[str]:
    """What is looked for as it is: full text has one word for a sentence of a language without spaces."""
    return [] if query.isascii() else [part for part in _BETWEEN.split(query) if part]


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def forget(tx: Transaction, items: Any) -> list[Row]:
    listed = j.elements(items)
    found = {memory_id for item in listed if (memory_id := get_text(item, "memory_id")) in tx.tables.memories}
    for memory_id in sorted(map(str, found)):
        tx.delete(tx.tables.memories, memory_id)
    return [
        {"memory_id": _raw_id(item), "outcome": "forgotten" if get_text(item, "memory_id") in found else "unknown"}
        for item in listed
    ]


def prune_memories(tx: Transaction, limit: int) -> Row:
    over = [row for row in tx.tables.memories.values() if row["expires_at"] is not None and row["expires_at"] <= tx.now]
    over.sort(key=lambda row: (row["expires_at"], row["memory_id"].encode()))
    for row in over[:limit]:
        tx.delete(tx.tables.memories, row["memory_id"])
    return {"memories": len(over[:limit])}
