"""Compare the answers and the rows of two kernels after the same calls."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Protocol

from heliograph.errors import KernelRejected
from heliograph.testing.kernel.backend import Backend

_SQLSTATE = re.compile("[0-9A-Z]{5}")
# Numbers from PostgreSQL's sequences. A rejected call uses some up, and how many depends on the part of the statement
# that failed; only their order has a meaning.
_POSTGRES_ONLY = ("boxes", "callbacks", "pruned")
_NUMBERS = {
    "agent_turns": ("queue_seq",), "agent_inbox": ("inbox_id",), "cards": ("position",),
    "turn_waiting_tools": ("position",), "outbox": ("outbox_id",),
}  # fmt: skip


class Walk(Protocol):
    """A random sequence of calls that depend on the answers to earlier ones."""

    now: datetime

    def calls(self, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]: ...

    def apply(self, function: str, answer: Any) -> None: ...


def answer_of(backend: Backend, function: str, args: tuple[Any, ...], now: datetime) -> tuple[str, Any]:
    """The answer of the kernel, or the SQLSTATE of its rejection."""
    try:
        answer = backend.call(function, args, now)
    except KernelRejected as error:
        return "rejected", _blurred(error.message[-7:].strip("()"))
    return "answered", _without_messages(function, answer)


def answers_of_both(
    walk: Walk, in_memory: Backend, real: Backend, count: int, seed: int
) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Make the calls of a walk on both kernels, both empty at first. Yield each call with its answer, which is the same.

    In the end the rows are the same, and the doctor finds nothing.
    """
    for backend in (in_memory, real):
        backend.reset()
    for function, args in walk.calls(count):
        answers = [answer_of(backend, function, ("p", *args), walk.now) for backend in (in_memory, real)]
        assert answers[0] == answers[1], f"seed {seed}: {function} {args}"
        assert answers[0][0] == "answered", f"seed {seed}: {function} {args}"
        walk.apply(function, answers[0][1])
        yield function, args, answers[0][1]
    assert stored(in_memory, "p") == stored(real, "p"), f"seed {seed}"
    assert real.doctor("p", False) == [], f"seed {seed}"


def _without_messages(function: str, answer: Any) -> Any:
    """Remove row numbers, and messages about constraints, which differ between the kernels."""
    rows = answer.get("failed", []) if function.startswith("sweep_") and isinstance(answer, dict) else answer
    for row in rows if isinstance(rows, list) else ():
        if function == "read_outbox":
            del row["outbox_id"]
        elif isinstance(row, dict) and _SQLSTATE.fullmatch(row.get("code") or ""):
            row["code"] = _blurred(row["code"])
            del row["message"]
        elif function == "read_box":
            del row["position"]
    return answer


def _blurred(state: str) -> str:
    """Which of two things that are wrong is found first is no promise: data of no use (22), or a broken constraint (23)."""
    return state[:2] if state.startswith(("22", "23")) else state


def stored(backend: Backend, project: str) -> dict[str, list[dict[str, Any]]]:
    """The tables that both kernels have, the numbers of their rows replaced by their order."""
    tables = {table: rows for table, rows in backend.dump(project).items() if table not in _POSTGRES_ONLY}
    for table, columns in _NUMBERS.items():
        for column in columns:
            order = sorted(row[column] for row in tables[table])
            for row in tables[table]:
                row[column] = bisect_right(order, row[column])
    tables["agent_inbox"].sort(key=lambda row: (row["agent_turn_id"], row["inbox_id"]))
    return tables
