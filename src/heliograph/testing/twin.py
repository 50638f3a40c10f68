"""The kernel in memory: the functions of `heliograph.ledger.kernel`, the same JSON in and out as their SQL.

`twin_runs`, `twin_turns`, `twin_sweeps` and `twin_doctor` mirror the SQL files
function by function; what PostgreSQL would refuse is refused here with the same
SQLSTATE, and leaves nothing behind. `bugs` re-opens single rules: the mutants
that the simulator has to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from heliograph.errors import KernelRefused
from heliograph.ledger.kernel import KERNEL
from heliograph.testing import twin_runs, twin_sweeps, twin_turns
from heliograph.testing.twin_doctor import doctor
from heliograph.testing.twin_json import Refusal, decode, encode
from heliograph.testing.twin_tables import Project, Row, Transaction, microseconds

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "start_runs": twin_runs.start_runs, "enqueue": twin_runs.enqueue, "react": twin_runs.react,
    "claim": twin_turns.claim, "renew": twin_turns.renew, "append": twin_turns.append, "finish": twin_turns.finish,
    "sweep_leases": twin_sweeps.sweep_leases, "sweep_expired": twin_sweeps.sweep_expired,
    "sweep_queued": twin_sweeps.sweep_queued, "sweep_bells": twin_sweeps.sweep_bells,
    "sweep_owed": twin_sweeps.sweep_owed, "read_outbox": twin_sweeps.read_outbox,
    "mark_published": twin_sweeps.mark_published, "doctor": doctor,
}  # fmt: skip
_BEGINNING = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


class Twin:
    """A kernel with nothing in it. See `backend.Backend` for the protocol that it follows."""

    name = "twin"

    def __init__(self, bugs: Iterable[str] = ()):
        self.bugs = frozenset(bugs)
        self.reset()

    def reset(self) -> None:
        self._projects: dict[str, Project] = {}
        self._counters: dict[str, int] = {}

    def close(self) -> None:
        """Nothing to close."""

    def call(self, function: str, args: tuple[Any, ...], now: datetime | None = None) -> Any:
        """One kernel function: all of it, or KernelRefused and nothing. `args` as `Database.call` takes them."""
        definition = KERNEL[function]
        values = [_read(a) if cast == "jsonb" else a for a, cast in zip(args, definition.casts, strict=True)]
        tables = self._tables(values[0])
        tx = Transaction(tables, microseconds(now or _BEGINNING), self.bugs, self._counters)
        try:
            # encoded and read again: nothing that the caller holds is shared with the tables
            return decode(encode(_FUNCTIONS[function](tx, *values[1:])))
        except Refusal as refusal:
            tx.rollback()
            raise KernelRefused(f"heliograph.{function} refused: {refusal.message} ({refusal.state})") from None

    def heads(self, project: str) -> list[Row]:
        return sorted(self._tables(project).heads.values(), key=lambda h: str(h["agent_id"]))

    def dump(self, project: str) -> dict[str, list[Row]]:
        """Every table's rows, by primary key; times in microseconds."""
        tables = self._tables(project)
        by_name = {
            "runs": tables.runs, "agent_state_head": tables.heads, "agent_turns": tables.turns,
            "agent_inbox": tables.inbox, "execution_edges": tables.edges, "cards": tables.cards,
            "box_cards": tables.boxes, "leases": tables.leases, "outbox": tables.outbox, "signals": tables.signals,
        }  # fmt: skip
        return {name: decode(encode([row for _, row in sorted(table.items())])) for name, table in by_name.items()}

    def _tables(self, project: str) -> Project:
        if project not in self._projects:
            self._projects[project] = Project()
        return self._projects[project]


def _read(value: object) -> Any:
    raw = encode(value)
    if rb"\u0000" in raw.replace(rb"\\", b""):
        raise KernelRefused("unsupported Unicode escape sequence: \\u0000 cannot be converted to text (22P05)")
    return decode(raw)
