"""The signatures of the kernel's SQL functions: name, argument types, and whether the last argument is the time.

The time is an argument. Python passes the clock of the database, read in the statement, so that the kernel never compares clocks of
workers. A list of requests is passed as one array for each of their columns, which `kernel_columns.py` derives from the declared type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from heliograph.ledger.decoding import decode, decode_row
from heliograph.ledger.kernel_columns import ITEMS, TARGETS, Column, arrays_of, columns_of
from heliograph.requests import (
    Append,
    BeginCall,
    ClaimTarget,
    Deferral,
    Finish,
    React,
    RecordCall,
    Renewal,
    Report,
    StartRun,
    Suspension,
)

_TARGET = columns_of(ClaimTarget)


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """One SQL function.

    casts: the types of its arguments; ITEMS stands for the arrays of `columns`, and TARGETS for those of the targets of
    a claim. takes_now: p_now follows them as the last argument. columns: of its list of requests.
    returns: the columns of its rows; empty if it returns JSON.
    """

    name: str
    casts: tuple[str, ...]
    takes_now: bool = True
    columns: tuple[Column, ...] = ()
    returns: tuple[Column, ...] = ()

    @property
    def types(self) -> list[str]:
        """The SQL types of the arguments, apart from p_now."""
        types: list[str] = []
        for cast in self.casts:
            types += [f"{column.type}[]" for column in self.columns_at(cast)] or [cast]
        return types

    def statement(self, now: str = "clock_timestamp()") -> str:
        """Return `select heliograph.name($1::.., ..)`. now: the SQL expression for p_now."""
        arguments = [f"${n}::{cast}" for n, cast in enumerate(self.types, 1)]
        if self.takes_now:
            arguments.append(now)
        call = f"heliograph.{self.name}({', '.join(arguments)})"
        return f"select * from {call}" if self.returns else f"select {call}"  # noqa: S608  own names

    def values(self, arguments: Sequence[object], encode: Callable[[object], Any]) -> list[Any]:
        """Return the values of the statement's parameters. encode: encodes one JSON value.

        Raises KernelRejected for requests that `arrays_of` rejects.
        """
        values: list[Any] = []
        for argument, cast in zip(arguments, self.casts, strict=True):
            if columns := self.columns_at(cast):
                values += arrays_of(columns, argument, encode, f"p_{cast}")
            else:
                values.append(encode(argument) if cast == "jsonb" else argument)
        return values

    def read(self, rows: Sequence[Any], read_json: Callable[[bytes], Any] = decode) -> Any:
        """Return the answer in the rows that the statement returned; a column that is null is a missing key."""
        if self.returns:
            return [decode_row(row, self._json_columns, read_json) for row in rows]
        [(answer,)] = rows
        return None if answer is None else read_json(answer)

    def columns_at(self, cast: str) -> tuple[Column, ...]:
        """The columns of the arrays that `cast` stands for; empty if it is a type."""
        return self.columns if cast == ITEMS else _TARGET if cast == TARGETS else ()

    @property
    def _json_columns(self) -> list[str]:
        return [column.name for column in self.returns if column.type == "jsonb"]


_RENEWED = (Column("turn_id", "text"), Column("outcome", "text"), Column("stop", "jsonb"))
_STARTED = (
    Column("run_id", "text"), Column("outcome", "text"), Column("code", "text"), Column("message", "text"),
    Column("targets", "text[]"), Column("woken", "text[]"),
)  # fmt: skip
_APPENDED = (
    Column("turn_id", "text"), Column("outcome", "text"), Column("first_seq", "bigint"), Column("code", "text"),
    Column("message", "text"),
)  # fmt: skip
_BEGUN = (
    Column("turn_id", "text"), Column("call_id", "text"), Column("outcome", "text"), Column("code", "text"), Column("message", "text"),
    Column("status", "text"), Column("content", "jsonb"), Column("budget", "jsonb"), Column("circuit", "jsonb"), Column("rate", "jsonb"),
)  # fmt: skip
_RECORDED = (
    Column("turn_id", "text"), Column("call_id", "text"), Column("outcome", "text"), Column("first_seq", "bigint"),
    Column("code", "text"), Column("message", "text"), Column("begun", "jsonb"),
)  # fmt: skip
_FINISHED = (
    Column("turn_id", "text"), Column("outcome", "text"), Column("targets", "text[]"), Column("woken", "text[]"),
    Column("run", "jsonb"), Column("code", "text"), Column("message", "text"),
)  # fmt: skip
_SUSPENDED = (
    Column("turn_id", "text"), Column("outcome", "text"), Column("first_seq", "bigint"), Column("targets", "text[]"),
    Column("woken", "text[]"), Column("code", "text"), Column("message", "text"), Column("stop", "jsonb"),
    Column("waits", "jsonb"), Column("circuits", "jsonb"), Column("circuit", "jsonb"), Column("rate", "jsonb"),
    Column("calls", "jsonb"), Column("budget", "jsonb"),
)  # fmt: skip
_REPORTED = (
    Column("turn_id", "text"), Column("call_id", "text"), Column("outcome", "text"), Column("resumed", "boolean"),
    Column("targets", "text[]"), Column("woken", "text[]"), Column("code", "text"), Column("message", "text"),
)  # fmt: skip
_DEFERRED = (
    Column("turn_id", "text"), Column("outcome", "text"), Column("targets", "text[]"), Column("woken", "text[]"),
    Column("due_at", "timestamp with time zone"), Column("stop", "jsonb"),
)  # fmt: skip
_REACTED = (
    Column("run_id", "text"), Column("outcome", "text"), Column("targets", "text[]"), Column("woken", "text[]"),
    Column("code", "text"), Column("message", "text"),
)  # fmt: skip
_FUNCTIONS = (
    KernelFunction("start_runs", ("text", ITEMS), columns=columns_of(StartRun), returns=_STARTED),
    KernelFunction("enqueue", ("text", "jsonb")),
    KernelFunction("claim", ("text", TARGETS, "text", "integer", "float8"), columns=_TARGET),
    KernelFunction("fail_unclaimable", ("text", TARGETS), columns=_TARGET),
    KernelFunction("renew", ("text", ITEMS, "float8"), columns=columns_of(Renewal), returns=_RENEWED),
    KernelFunction("release", ("text", "jsonb")),
    KernelFunction("append", ("text", ITEMS), columns=columns_of(Append), returns=_APPENDED),
    KernelFunction("begin_call", ("text", ITEMS), columns=columns_of(BeginCall), returns=_BEGUN),
    KernelFunction("record_call", ("text", ITEMS), columns=columns_of(RecordCall), returns=_RECORDED),
    KernelFunction("suspend", ("text", ITEMS), columns=columns_of(Suspension), returns=_SUSPENDED),
    KernelFunction("defer", ("text", ITEMS), columns=columns_of(Deferral), returns=_DEFERRED),
    KernelFunction("finish", ("text", ITEMS), columns=columns_of(Finish), returns=_FINISHED),
    KernelFunction(
        "finish_and_claim", ("text", ITEMS, TARGETS, "text", "integer", "float8"), columns=columns_of(Finish)
    ),
    KernelFunction(
        "start_and_claim", ("text", ITEMS, TARGETS, "text", "integer", "float8"), columns=columns_of(StartRun)
    ),
    KernelFunction(
        "report_and_claim", ("text", ITEMS, TARGETS, "text", "integer", "float8"), columns=columns_of(Report)
    ),
    KernelFunction("stop", ("text", "jsonb")),
    KernelFunction("stop_runs", ("text", "jsonb")),
    KernelFunction("react", ("text", ITEMS), columns=columns_of(React), returns=_REACTED),
    KernelFunction("report", ("text", ITEMS), columns=columns_of(Report), returns=_REPORTED),
    KernelFunction("take_commands", ("text", "jsonb", "integer", "float8")),
    KernelFunction("command_pools", ("text", "text")),
    KernelFunction("take_halts", ("text", "jsonb", "integer", "float8")),
    KernelFunction("sweep_leases", ("text", "integer")),
    KernelFunction("sweep_expired", ("text", "integer")),
    KernelFunction("sweep_waits", ("text", "integer")),
    KernelFunction("sweep_stops", ("text", "integer")),
    KernelFunction("sweep_reports", ("text", "integer")),
    KernelFunction("sweep_stuck", ("text", "integer", "text")),
    KernelFunction("sweep_queued", ("text", "integer")),
    KernelFunction("sweep_bells", ("text", "float8")),
    KernelFunction("sweep_pending_reactions", ("text", "jsonb", "integer"), takes_now=False),
    KernelFunction("bell_key", ("text",), takes_now=False),
    KernelFunction("declare_wire", ("text", "text")),
    KernelFunction("read_outbox", ("text", "integer")),
    KernelFunction("mark_published", ("text", "jsonb")),
    KernelFunction("take_callbacks", ("text", "integer", "float8")),
    KernelFunction("record_callbacks", ("text", "jsonb")),
    KernelFunction("sweep_callbacks", ("text", "integer", "float8")),
    KernelFunction("redeliver_callbacks", ("text", "jsonb")),
    KernelFunction("put_boxes", ("text", "jsonb")),
    KernelFunction("fork_boxes", ("text", "jsonb")),
    KernelFunction("replace_boxes", ("text", "jsonb")),
    KernelFunction("read_shared_log", ("text", "text", "bigint", "text[]", "bigint"), takes_now=False),
    KernelFunction("first_failure", ("text", "text"), takes_now=False),
    KernelFunction("why", ("text", "text", "integer"), takes_now=False),
    KernelFunction("why_not", ("text", "text", "text", "bigint", "integer"), takes_now=False),
    KernelFunction("read_tree", ("text", "text", "bigint", "integer"), takes_now=False),
    KernelFunction("read_graph", ("text", "text", "bigint", "integer"), takes_now=False),
    KernelFunction("read_open_turns", ("text", "text", "text", "text", "bigint", "integer")),
    KernelFunction("read_ended_turns", ("text", "text", "bigint", "integer")),
    KernelFunction("read_conversation", ("text", "text", "text", "bigint", "integer"), takes_now=False),
    KernelFunction("read_box", ("text", "text", "bigint", "integer"), takes_now=False),
    KernelFunction("remember", ("text", "jsonb")),
    KernelFunction("recall", ("text", "text", "text", "integer")),
    KernelFunction("forget", ("text", "jsonb"), takes_now=False),
    KernelFunction("set_limits", ("text", "jsonb"), takes_now=False),
    KernelFunction("prune", ("text", "timestamptz", "integer")),
    KernelFunction("beat", ("text", "jsonb")),
    KernelFunction("deregister", ("text", "jsonb")),
    KernelFunction("list_workers", ("text",)),
    KernelFunction("subscribe", ("text", "text", "jsonb", "text", "jsonb")),
    KernelFunction("unsubscribe", ("text", "text")),
    KernelFunction("take_signals", ("text", "text", "text", "integer", "float8")),
    KernelFunction("record_positions", ("text", "jsonb")),
    KernelFunction("list_subscriptions", ("text", "text", "integer")),
    KernelFunction("liveness", ("text",)),
    KernelFunction("measure", ("text",)),
    KernelFunction("doctor", ("text", "boolean"), takes_now=False),
)
KERNEL: dict[str, KernelFunction] = {function.name: function for function in _FUNCTIONS}


@cache
def statement_of(function: str) -> str:
    """Return the statement that calls a function, with the clock of the database."""
    return KERNEL[function].statement()
