"""What the commits of recorded runs keep in memory, like 29_recordings.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel.jsonb import SqlError, get, get_text
from heliograph.testing.kernel.tables import Row

_BYTES_MAX = 64 * 1024 * 1024
_TAGS_MAX = 50


def recording_of(item: Any) -> str | None:
    """What the commit of an item keeps beside its signals: its recording, or the body of it. Raises 22023 for too much."""
    recording = get(item, "recording")
    body = recording if isinstance(recording, str) else get_text(recording, "body")
    if body is not None and len(body.encode()) > _BYTES_MAX:
        raise SqlError(
            "22023",
            f"p_items[].recording.body has {len(body.encode())} bytes; at most {_BYTES_MAX} are allowed: record less, or write "
            "signals more often",
        )
    return body


def recording_columns(item: Any) -> Row:
    """The columns of a new run with the name and the tags of its recording; null for a run that is not recorded. Raises 22023."""
    recording = get(item, "recording")
    if not isinstance(recording, dict):
        return {"recording_name": None, "recording_tags": None}
    tags = recording.get("tags") or []
    if len(tags) > _TAGS_MAX or not all(isinstance(tag, str) and 1 <= len(tag.encode()) <= 200 for tag in tags):
        raise SqlError("22023", f"p_runs[].recording.tags must have at most {_TAGS_MAX} texts of 1 to 200 bytes")
    return {"recording_name": recording.get("name"), "recording_tags": sorted(tags)}
