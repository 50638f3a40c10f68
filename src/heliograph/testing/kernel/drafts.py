"""Check signals before they enter a log, in memory: `_wrong_draft` and `_reject_drafts` of the SQL."""

from __future__ import annotations

import re
from typing import Any

from heliograph.ids import signal_id
from heliograph.request_items import SignalItem
from heliograph.testing.kernel.jsonb import ABSENT, get, get_text
from heliograph.testing.kernel.keys import wrong_keys
from heliograph.testing.kernel.limits import rejection
from heliograph.testing.kernel.tables import Row

_PLACE = re.compile(r"_([0-9]{1,18})\Z")
_SIGNAL_ID = re.compile(r"sig_[^/:\u0001-\u001f\u007f-\u009f]+_[1-9][0-9]{0,17}")
_ID_BYTES_MAX = 223  # a run id of 200 bytes, a position of 18 digits, and what is between them
_POSITION = re.compile(r"[1-9][0-9]{0,17}")
_DIGITS = re.compile(r"_[0-9]+\Z")


def reject_drafts(run: Row, drafts: Any, ahead: int = 0) -> Row | None:
    """Reject invalid drafts. run: {run_id, signal_seq}; ahead: the number of signals between its newest one and the drafts.

    The caller rejects drafts that are not a list.
    """
    for place, draft in enumerate(drafts if isinstance(drafts, list) else []):
        if wrong := _wrong_draft(run["run_id"], run["signal_seq"] + ahead, place, draft):
            return rejection("invalid_signal", wrong)
    return None


def _wrong_draft(run_id: str, base: int, place: int, draft: Any) -> str | None:
    if not isinstance(draft, dict):
        return f"signals[{place}] must be an object"
    if wrong := wrong_keys(SignalItem, draft, "signals[]"):
        return wrong
    name, agent, pending = (get(draft, key) for key in ("name", "agent", "is_pending"))
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 200:
        return f"signals[{place}].name must be a string of 1 to 200 bytes"
    if not (agent is ABSENT or agent is None or (isinstance(agent, str) and len(agent.encode()) <= 200)):
        return f"signals[{place}].agent must be the name of an agent, of at most 200 bytes, or null"
    if not (pending is ABSENT or pending is None or isinstance(pending, bool)):
        return f"signals[{place}].is_pending must be true or false"
    at = get(draft, "at")
    if isinstance(at, bool) or not (at is ABSENT or at is None or isinstance(at, str | int | float)):
        return f"signals[{place}].at must be a number of microseconds, a string, or null"
    if get_text(draft, "trust") not in (None, "trusted", "untrusted"):
        return f"signals[{place}].trust must be trusted or untrusted"
    if not _is_earlier(run_id, base, place, get(draft, "parent")):
        return f"the parent of signal {name[:80]} must be an earlier signal: its id, or its index in this request"
    return None


def _is_earlier(run_id: str, base: int, place: int, parent: Any) -> bool:
    if base + place == 0 or parent is ABSENT or parent is None:
        return base + place == 0 and (parent is ABSENT or parent is None)
    if isinstance(parent, int) and not isinstance(parent, bool):
        return 0 <= parent < place
    if not isinstance(parent, str):
        return False
    if _POSITION.fullmatch(parent):
        return int(parent) <= base
    if _DIGITS.sub("_0", parent) != signal_id(run_id, 0):  # a signal of another run
        return _SIGNAL_ID.fullmatch(parent) is not None and len(parent.encode()) <= _ID_BYTES_MAX
    found = _PLACE.search(parent)
    return found is not None and 1 <= int(found[1]) <= base and parent == signal_id(run_id, int(found[1]))
