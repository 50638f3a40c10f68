"""The tables of the in-memory kernel: rows, and the constraints of 0001_tables.sql and row_guard.py. Rows are dicts, tables are dicts of rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from heliograph.testing.kernel.jsonb import SqlError

Row: TypeAlias = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OUTCOMES = frozenset({"success", "failed", "canceled", "timeout", "partial"})
REPORTED = frozenset({"success", "failed", "timeout", "unknown", "canceled"})
PHASES = frozenset({"init", "plan", "act", "reflect", "terminate"})
DELIVERABLE = "task.deliverable"
INBOX_OPEN = frozenset({"queued", "pending", "processing", "deferred"})
_MESSAGES = frozenset({"turn", "ui_action", "tool_result", "timeout", "stop"})


def microseconds(at: datetime) -> int:
    """PostgreSQL's resolution: whole microseconds since 1970, exactly."""
    return (at - EPOCH) // timedelta(microseconds=1)


def timestamp(at: int) -> str:
    """A timestamptz as jsonb writes it, in UTC."""
    written = (EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{written}+00:00"


def microseconds_of(text: str) -> int:
    """The inverse of `timestamp`."""
    return microseconds(datetime.fromisoformat(text))


def interval(seconds: float) -> int:
    """make_interval(secs => seconds) in microseconds."""
    return round(seconds * 1_000_000)


def result_of(turn_id: str, call_id: str) -> str:
    """The id of the card with the result of a call."""
    return f"card:{turn_id}:call:{call_id}"


def end_of(turn_id: str) -> str:
    """The id of a turn's deliverable. A turn has only one, because the id follows from the turn's id."""
    return f"card:{turn_id}:end"


class Table(dict[Any, Row]):
    """Rows by primary key. `required` columns are not null; `holds` checks whether a row meets the table's checks.

    group: a column that never changes; `of` returns the rows with one value of it.
    """

    def __init__(
        self, name: str, required: str, holds: Callable[[Row], bool] = lambda row: True, group: str | None = None
    ):
        super().__init__()
        self.name = name
        self.required = tuple(required.split())
        self.holds = holds
        self.group = group
        self.groups: dict[Any, dict[Any, Row]] = {}

    def check(self, row: Row) -> None:
        """Check the constraints of a row. Raises 23502 or 23514."""
        for column in self.required:
            if row[column] is None:
                raise SqlError("23502", f"null value in column {column} of {self.name}")
        if not self.holds(row):
            raise SqlError("23514", f"a row of {self.name} violates a check")

    def of(self, value: Any) -> list[Row]:
        """The rows whose group is `value`, in the order in which they were inserted."""
        return list(self.groups.get(value, {}).values())

    def newest_of(self, value: Any) -> Iterator[Row]:
        """The rows whose group is `value`, the last inserted first."""
        return reversed(self.groups.get(value, {}).values())

    def put(self, key: Hashable, row: Row) -> None:
        self[key] = row
        if self.group is not None:
            self.groups.setdefault(row[self.group], {})[key] = row

    def take(self, key: Hashable) -> Row:
        row = self.pop(key)
        if self.group is not None:
            del self.groups[row[self.group]][key]
        return row


def _run_holds(row: Row) -> bool:
    is_ended, name = row["status"] == "ended", row["recording_name"]
    return (
        (name is None or 1 <= len(name.encode()) <= 200)
        and row["status"] in ("running", "terminating", "ended")
        and (row["outcome"] is None or row["outcome"] in OUTCOMES)
        and is_ended == (row["outcome"] is not None) == (row["ended_at"] is not None)
        and row["open_turns"] >= 0
        and row["pending_reactions"] >= 0
        and not (is_ended and (row["open_turns"] or row["pending_reactions"]))  # K26
    )


def _head_holds(row: Row) -> bool:
    is_running, is_suspended = row["status"] == "running", row["status"] == "suspended"
    return (
        (row["phase"] is None or row["phase"] in PHASES)
        and 0 <= row["priority"] <= 3
        and (row["status"] == "idle") == (row["active_agent_turn_id"] is None)
        and is_running == (row["lease_until"] is not None) == (row["owner"] is not None)
        and is_suspended == (row["waiting_tool_count"] > 0) == (row["resumes_on"] is not None)
        and row["resumes_on"] in (None, "all", "each")
        and (row["due_at"] is None or row["status"] == "dispatched")
        and (row["stop_requested_at"] is None) == (row["force_at"] is None)
        and (row["stop_requested_at"] is None or is_running or (row["status"] == "dispatched" and row["terminates"]))
    )


def _turn_holds(row: Row) -> bool:
    is_done = row["state"] == "done"
    return (
        (row["outcome"] is None or row["outcome"] in OUTCOMES)
        and row["message_type"] in ("turn", "ui_action")
        and row["max_attempts"] >= 1
        and is_done == (row["outcome"] is not None)
        and is_done == (row["finished_at"] is not None)
        and (row["parent_turn_id"] is None) == (row["parent_call_id"] is None)
    )


def _inbox_holds(row: Row) -> bool:
    has_call = row["correlation_id"] is not None or row["message_type"] in ("turn", "ui_action")
    is_status = row["report_status"] is None or row["report_status"] in REPORTED
    return row["message_type"] in _MESSAGES and is_status and has_call


def _card_holds(row: Row) -> bool:
    is_end = row["agent_turn_id"] is not None and row["card_id"] == end_of(row["agent_turn_id"])
    return (row["kind"] == DELIVERABLE) == is_end and (row["agent_turn_id"] is None) == (row["turn_epoch"] is None)


def _wait_holds(row: Row) -> bool:
    is_resolved = row["state"] == "resolved"
    return (
        row["kind"] in ("tool", "inline", "child", "timer", "human")
        and row["effect"] in ("pure", "idempotent", "transactional", "once")
        and row["after_execution"] in ("suspend", "terminate")
        and (row["status"] is None or row["status"] in REPORTED)
        and is_resolved == (row["status"] is not None) == (row["resolved_position"] is not None)
        and (row["state"] == "open") == (row["resolved_at"] is None)
        and (row["kind"] == "child") == (row["child_turn_id"] is not None)
    )


def _budget_holds(row: Row) -> bool:
    is_counted = all(row[column] >= 0 for column in ("amount_max", "reserved", "used", "overspent"))
    return is_counted and bool(row["used"] + row["reserved"] <= row["amount_max"])


def _circuit_holds(row: Row) -> bool:
    return row["state"] in ("closed", "open", "half_open") and (row["state"] == "open") == (
        row["open_until"] is not None
    )


def _circuit_call_holds(row: Row) -> bool:
    return row["status"] in ("trial", "success", "failure") and (row["status"] == "trial") == (row["ended_at"] is None)


@dataclass(slots=True)
class Project:
    """The tables of one project."""

    runs: Table = field(default_factory=lambda: Table("runs", "run_id target request_hash", _run_holds))
    heads: Table = field(default_factory=lambda: Table(
        "agent_state_head", "agent_id run_id agent_name target", _head_holds))  # fmt: skip
    turns: Table = field(default_factory=lambda: Table(
        "agent_turns", "agent_turn_id agent_id max_attempts cause_seq activation_seq output_box_id expires_at",
        _turn_holds, "agent_id"))  # fmt: skip
    inbox: Table = field(default_factory=lambda: Table(
        "agent_inbox", "agent_turn_id", _inbox_holds, "agent_turn_id"))  # fmt: skip
    cards: Table = field(default_factory=lambda: Table("cards", "card_id box_id kind", _card_holds, "box_id"))
    blobs: Table = field(default_factory=lambda: Table("blobs", "blob_id"))
    leases: Table = field(default_factory=lambda: Table("leases", "agent_id agent_turn_id owner", group="agent_id"))
    waits: Table = field(default_factory=lambda: Table(
        "turn_waiting_tools", "agent_turn_id tool_call_id tool kind effect epoch after_execution", _wait_holds, "agent_turn_id"))  # fmt: skip
    outbox: Table = field(default_factory=lambda: Table("outbox", "key agent_turn_id due_at", group="agent_turn_id"))
    signals: Table = field(default_factory=lambda: Table("signals", "run_id entries", group="run_id"))
    limits: Table = field(default_factory=lambda: Table("project_limits", ""))
    wires: Table = field(default_factory=lambda: Table("project_wires", "wire"))
    budgets: Table = field(
        default_factory=lambda: Table("budgets", "turn_id kind amount_max", _budget_holds, "turn_id")
    )

    circuit_breakers: Table = field(default_factory=lambda: Table(
        "circuit_breakers", "type target state generation changed_at", _circuit_holds))  # fmt: skip
    circuit_calls: Table = field(default_factory=lambda: Table(
        "circuit_calls", "type target generation agent_turn_id call_id status", _circuit_call_holds))  # fmt: skip
    rate_buckets: Table = field(default_factory=lambda: Table(
        "rate_buckets", "kind name tokens_max seconds full_at last_start last_day peaks"))  # fmt: skip

    checkpoints: Table = field(
        init=False, repr=False, default_factory=lambda: Table("run_checkpoints", "", group="run_id")
    )
    by_name: dict[str, Table] = field(init=False, repr=False)  # of those that have the same rows in PostgreSQL

    def __post_init__(self) -> None:
        tables = (getattr(self, column.name) for column in fields(self) if column.init)
        self.by_name = {table.name: table for table in tables}

    def __iter__(self) -> Iterator[Table]:
        return iter(self.by_name.values())

    def queued(self, agent_id: str) -> list[Row]:
        """The agent's queued turns, oldest first."""
        return [t for t in self.turns.of(agent_id) if t["state"] == "queued"]

    def active(self, agent_id: str) -> Row | None:
        """The turn that the agent's head has."""
        turn_id = self.heads[agent_id]["active_agent_turn_id"]
        return None if turn_id is None else self.turns.get(turn_id)
