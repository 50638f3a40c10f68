"""What the commits of recorded runs keep in memory, like 29_recordings.sql, under the same names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.jsonb import SqlError, get, get_text
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction

_BYTES_MAX = 64 * 1024 * 1024


def recording_of(item: Any) -> str | None:
    """What the commit of an item keeps beside its signals. Raises 22023 for too much."""
    body = get_text(get(item, "recording"), "body")
    if body is not None and len(body.encode()) > _BYTES_MAX:
        raise SqlError(
            "22023",
            f"p_items[].recording.body has {len(body.encode())} bytes; at most {_BYTES_MAX} are allowed: record less, or write "
            "signals more often",
        )
    return body


def name_recordings(tx: Transaction, runs: Any, answers: Sequence[Row]) -> None:
    """Keep the names and the tags of the recordings of new runs. Raises 23514."""
    for item, answer in zip(j.elements(runs), answers, strict=True):
        recording = get(item, "recording")
        if not isinstance(recording, dict) or answer["outcome"] != "started":
            continue
        tx.insert(tx.tables.recordings, answer["run_id"], {
            "run_id": answer["run_id"], "name": recording.get("name"), "tags": sorted(recording.get("tags") or []),
            "at": tx.now,
        })  # fmt: skip
