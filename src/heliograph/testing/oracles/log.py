"""Read the signals in the rows of a run's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliograph.ids import signal_id
from heliograph.signals.model import Signal, Source
from heliograph.testing.kernel.head import is_pending
from heliograph.testing.kernel.jsonb import ABSENT, get, get_text
from heliograph.testing.kernel.tables import EPOCH, Row
from heliograph.testing.oracles.trace import FORK_NAME
from heliograph.turn.drafts import absolute_time, parent_id


def signals_of(row: Row) -> list[Row]:
    """The signals in one row of the table `signals`, in order."""
    found = []
    for n, entry in enumerate(row["entries"]):
        parent, payload, at = get(entry, "parent"), get(entry, "payload"), absolute_time(row["entries"], n)
        found.append({
            "run_id": row["run_id"], "seq": row["seq"] + n, "name": get_text(entry, "name"),
            "payload": {} if payload is ABSENT else payload, "at": row["at"] if at is None else at,
            "agent": get_text(entry, "agent"), "agent_turn_id": row["agent_turn_id"], "is_pending": row["is_pending"] and is_pending(entry),
            "is_untrusted": get_text(entry, "trust") == "untrusted",
            "parent_id": parent_id(row["run_id"], row["seq"], parent),
        })  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class RunLog:
    """The log of one run. own: what it has recorded itself. whole: with what it shares as a fork, in order."""

    run: Row
    own: list[Row]
    whole: list[Row]


def logs_of(tables: Mapping[str, list[Row]]) -> list[RunLog]:
    """The logs of all runs."""
    runs, own = {run["run_id"]: run for run in tables["runs"]}, dict[str, list[Row]]()
    for row in tables["signals"]:
        own.setdefault(row["run_id"], []).extend(signals_of(row))

    def shared(run: Row | None) -> list[Row]:
        if run is None or run["forked_seq"] is None:
            return []
        origin = runs.get(run["forked_from"])
        return [s for s in shared(origin) + own.get(run["forked_from"], []) if s["seq"] <= run["forked_seq"]]

    return [RunLog(run, log, shared(run) + log) for run in tables["runs"] for log in [own.get(run["run_id"], [])]]


def without_repeated(log: Sequence[Row], turns: Sequence[Row]) -> list[Row]:
    """The log of a fork, without the activations of the turns that it starts again."""
    places = {turn["agent_turn_id"]: (turn["run_id"], turn["activation_seq"]) for turn in turns}
    repeated = {places.get(line["turn_id"]) for signal in log if signal["name"] == FORK_NAME
                for line in signal["payload"]["turns"] if "new_turn_id" in line}  # fmt: skip
    return [signal for signal in log if (signal["run_id"], signal["seq"]) not in repeated]


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
