"""The in-memory kernel: the functions of `heliograph.ledger.kernel`, with the same JSON in and out as their SQL.

The modules of this package follow the SQL files function by function, and give
each function the name of its SQL function, without a leading underscore. Where
PostgreSQL rejects a call, the in-memory kernel rejects it with the same SQLSTATE
and changes nothing. It has no boxes besides those that turns write, and no prune,
callbacks, memories, liveness, measure or doctor: `POSTGRES_ONLY` names the functions that
it lacks. Each of `bugs` removes one rule, for the mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from heliograph.errors import KernelRejected
from heliograph.ledger.kernel import KERNEL
from heliograph.ledger.kernel_columns import ITEMS, TARGETS
from heliograph.testing.kernel import (
    append,
    begin_call,
    boxes,
    calls_that_claim,
    claim,
    commands,
    conversations,
    defer,
    endings,
    enqueue,
    finish,
    limits,
    outbox,
    pending_reactions,
    reactions,
    record_call,
    reports,
    shared_log,
    start,
    stops,
    suspend,
    sweeps,
    unclaimed,
)
from heliograph.testing.kernel.jsonb import SqlError, check_json, decode, encode, in_order
from heliograph.testing.kernel.keys import check_keys
from heliograph.testing.kernel.tables import Project, Row, microseconds
from heliograph.testing.kernel.transaction import Transaction

_MODULES = (
    start, reactions, enqueue, claim, append, begin_call, record_call, defer, commands, suspend, endings, finish, calls_that_claim, reports, stops, sweeps, pending_reactions, outbox, limits,
    boxes, unclaimed, shared_log, conversations,
)  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(module, name) for name in KERNEL for module in _MODULES if hasattr(module, name)
}
# Functions beside the turns. Their tests, and the seeds on PostgreSQL, run them there.
POSTGRES_ONLY = KERNEL.keys() - _FUNCTIONS.keys()
_BEGINNING = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


class InMemoryKernel:
    """An empty kernel in memory, a `backend.Backend`."""

    name = "memory"  # on the command line, in `--backend memory`

    def __init__(self, bugs: Iterable[str] = ()):
        self.bugs = frozenset(bugs)
        self.reset()

    def reset(self) -> None:
        self._projects: dict[str, Project] = {}
        self._counters: dict[str, int] = {}

    def close(self) -> None:
        """Nothing to close."""

    def call(self, function: str, args: tuple[Any, ...], now: datetime | None = None) -> Any:
        """Call one kernel function; it raises KernelRejected and changes nothing, or succeeds. `args` are those of `Database.call`."""
        definition = KERNEL[function]
        places = [place for place, cast in enumerate(definition.casts) if cast in ("jsonb", ITEMS, TARGETS)]
        values = [_read(value) if place in places else value for place, value in enumerate(args)]
        tables = self._tables(values[0])
        if definition.columns:  # as PostgreSQL does: rejects values that no array of the column contains
            definition.values(args, encode)
        tx = Transaction(tables, microseconds(now or _BEGINNING), self.bugs, self._counters, str(values[0]))
        try:
            if places:
                check_keys(function, values[places[0]])
            # encoded and read again: nothing that the caller holds is shared with the tables
            answer = in_order(decode(encode(_FUNCTIONS[function](tx, *values[1:]))))
        except SqlError as error:
            tx.rollback()
            raise KernelRejected(f"heliograph.{function} rejected the call: {error.message} ({error.state})") from None
        if definition.returns:
            return [
                {
                    column.name: datetime.fromisoformat(value) if column.type == "timestamp with time zone" else value
                    for column in definition.returns
                    if (value := row.get(column.name)) is not None
                }
                for row in answer
            ]
        return answer

    def doctor(self, project: str, is_quiescent: bool) -> list[Row]:
        """Return no findings, because the doctor examines databases only."""
        return []

    def heads(self, project: str) -> list[Row]:
        return sorted(self._tables(project).heads.values(), key=lambda h: str(h["agent_id"]))

    def rows(self, project: str, table: str) -> Iterable[Row]:
        """The rows of one table, in the order of their insertion, for readers that change nothing."""
        return self._tables(project).by_name[table].values()

    def newest_signals(self, project: str, run_id: str) -> Iterator[Row]:
        """The rows of the log of a run, the newest first."""
        return self._tables(project).signals.newest_of(run_id)

    def dump(self, project: str) -> dict[str, list[Row]]:
        """Every table's rows, by primary key; times in microseconds."""
        return {
            table.name: decode(encode([row for _, row in sorted(table.items())])) for table in self._tables(project)
        }

    def _tables(self, project: str) -> Project:
        if project not in self._projects:
            self._projects[project] = Project()
        return self._projects[project]


def _read(value: object) -> Any:
    raw = encode(value)
    if rb"\u0000" in raw.replace(rb"\\", b""):
        raise KernelRejected("unsupported Unicode escape sequence: \\u0000 cannot be converted to text (22P05)")
    return check_json(raw, decode(raw))
