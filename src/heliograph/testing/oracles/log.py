"""Read the signals in the rows of a run's log."""

from __future__ import annotations

from heliograph.ids import signal_id
from heliograph.signals.model import Signal, Source
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.head import is_pending
from heliograph.testing.kernel.jsonb import ABSENT, get, get_text
from heliograph.testing.kernel.tables import EPOCH, Row


def signals_of(row: Row) -> list[Row]:
    """The signals in one row of the table `signals`, in order."""
    found = []
    for n, entry in enumerate(row["entries"]):
        parent, payload = get(entry, "parent"), get(entry, "payload")
        is_index = isinstance(parent, int | float) and not isinstance(parent, bool)
        found.append({
            "run_id": row["run_id"], "seq": row["seq"] + n, "name": get_text(entry, "name"),
            "payload": {} if payload is ABSENT else payload, "at": get_text(entry, "at") or row["at"],
            "agent": get_text(entry, "agent"), "agent_turn_id": row["agent_turn_id"], "is_pending": row["is_pending"] and is_pending(entry),
            "is_untrusted": get_text(entry, "trust") == "untrusted",
            "parent_id": signal_id(row["run_id"], row["seq"] + (j.whole(parent) or 0)) if is_index else j.text(parent),
        })  # fmt: skip
    return found


def without_times(log: list[Row]) -> list[Signal]:
    """The log as its readers receive it, except that each timestamp is 1970."""
    return [
        Signal(
            id=signal_id(row["run_id"], row["seq"]),
            name=row["name"],
            payload=row["payload"],
            timestamp=EPOCH,
            source=Source(row["agent"], row["parent_id"]),
            run_id=row["run_id"],
            seq=row["seq"],
            turn_id=row["agent_turn_id"],
        )
        for row in log
    ]
