"""The twin's tables: rows, the constraints of 0001_tables.sql, and a journal that takes a refused call back.

Rows are dicts and tables are dicts of rows, so that one journal of
(container, key, what was there) can undo everything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from heliograph.testing.twin_json import Refusal

Row: TypeAlias = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OUTCOMES = frozenset({"success", "failed", "canceled", "timeout", "partial"})
PHASES = frozenset({"init", "plan", "act", "reflect", "terminate"})
DELIVERABLE = "task.deliverable"
INBOX_OPEN = frozenset({"queued", "pending", "processing", "deferred"})
_MISSING = object()


def microseconds(at: datetime) -> int:
    """PostgreSQL's resolution: whole microseconds since 1970, exactly."""
    return (at - EPOCH) // timedelta(microseconds=1)


def interval(seconds: float) -> int:
    """make_interval(secs => seconds) in microseconds."""
    return round(seconds * 1_000_000)


class Table(dict[Any, Row]):
    """Rows by primary key. `required` columns are not null; `holds` says whether a row meets the table's checks."""

    def __init__(self, name: str, required: str, holds: Callable[[Row], bool] = lambda row: True):
        super().__init__()
        self.name = name
        self.required = tuple(required.split())
        self.holds = holds

    def check(self, row: Row) -> None:
        """Raises 23502 or 23514."""
        for column in self.required:
            if row[column] is None:
                raise Refusal("23502", f"null value in column {column} of {self.name}")
        if not self.holds(row):
            raise Refusal("23514", f"a row of {self.name} violates a check")


def _run_holds(row: Row) -> bool:
    is_ended = row["status"] == "ended"
    return (
        row["status"] in ("running", "terminating", "ended")
        and (row["outcome"] is None or row["outcome"] in OUTCOMES)
        and is_ended == (row["outcome"] is not None) == (row["ended_at"] is not None)
        and row["open_turns"] >= 0
        and row["owed"] >= 0
        and not (is_ended and (row["open_turns"] or row["owed"]))  # K26
    )


def _head_holds(row: Row) -> bool:
    is_running = row["status"] == "running"
    return (
        (row["phase"] is None or row["phase"] in PHASES)
        and 0 <= row["priority"] <= 3
        and (row["status"] == "idle") == (row["active_agent_turn_id"] is None)
        and is_running == (row["lease_until"] is not None) == (row["owner"] is not None)
    )


def _turn_holds(row: Row) -> bool:
    is_done = row["state"] == "done"
    return (
        (row["outcome"] is None or row["outcome"] in OUTCOMES)
        and row["max_attempts"] >= 1
        and is_done == (row["outcome"] is not None)
        and is_done == (row["deliverable_card_id"] is not None)
        and is_done == (row["finished_at"] is not None)
    )


@dataclass(slots=True)
class Project:
    """One project's tables; projects never meet (S1)."""

    runs: Table = field(default_factory=lambda: Table("runs", "run_id target request_hash", _run_holds))
    heads: Table = field(default_factory=lambda: Table("agent_state_head", "agent_id agent_name target", _head_holds))
    turns: Table = field(default_factory=lambda: Table(
        "agent_turns", "agent_turn_id agent_id max_attempts cause_seq activation_seq output_box_id expires_at",
        _turn_holds))  # fmt: skip
    inbox: Table = field(default_factory=lambda: Table("agent_inbox", "agent_id correlation_id"))
    edges: Table = field(default_factory=lambda: Table("execution_edges", "agent_id agent_turn_id cause_id"))
    cards: Table = field(default_factory=lambda: Table("cards", "card_id turn_epoch kind"))
    boxes: Table = field(default_factory=lambda: Table("box_cards", "card_id"))
    leases: Table = field(default_factory=lambda: Table("leases", "owner"))
    outbox: Table = field(default_factory=lambda: Table("outbox", "key"))
    signals: Table = field(default_factory=lambda: Table(
        "signals", "run_id name", lambda row: (row["parent_id"] is None) == (row["seq"] == 1)))  # fmt: skip

    def queued(self, agent_id: str) -> list[Row]:
        """The agent's queued turns, oldest first."""
        return [t for t in self.turns.values() if t["agent_id"] == agent_id and t["state"] == "queued"]

    def log(self, run_id: str) -> Iterator[Row]:
        """A run's signals in order."""
        for seq in range(1, self.runs[run_id]["signal_seq"] + 1):
            row = self.signals.get((run_id, seq))
            if row is not None:
                yield row


class Transaction:
    """One kernel call: the project's tables, the time in microseconds, the rules that are broken on purpose."""

    def __init__(self, tables: Project, now: int, bugs: frozenset[str], counters: dict[str, int]):
        self.tables = tables
        self.now = now
        self.bugs = bugs
        self._counters = counters
        self._journal: list[tuple[dict[Any, Any], Hashable, Any]] = []

    def at(self, now: int) -> Transaction:
        """The same transaction at another time."""
        other = copy(self)
        other.now = now
        return other

    def next(self, counter: str) -> int:
        """An identity column's next value; like PostgreSQL's, it is not given back by a rollback."""
        self._counters[counter] = value = self._counters.get(counter, 0) + 1
        return value

    def insert(self, table: Table, key: Hashable, row: Row) -> Row:
        """Raises 23502, 23505 or 23514."""
        table.check(row)
        if key in table:
            raise Refusal("23505", f"{table.name} has a row {key} already")
        self._journal.append((table, key, _MISSING))
        table[key] = row
        return row

    def update(self, table: Table, row: Row, **values: Any) -> None:
        """Raises 23502 or 23514."""
        self.set(row, **values)
        table.check(row)

    def set(self, row: Row, **values: Any) -> None:
        """Change columns that no check reads."""
        for column, value in values.items():
            self._journal.append((row, column, row[column]))
            row[column] = value

    def rollback(self) -> None:
        for container, key, before in reversed(self._journal):
            if before is _MISSING:
                del container[key]
            else:
                container[key] = before
        self._journal.clear()
