"""The signatures of the kernel's SQL functions: name, argument types, and whether the last argument is the time.

The time is an argument. Python passes the clock of the database, read in the statement, so that the kernel never compares clocks of
workers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """One SQL function. casts: the types of its arguments. takes_now: p_now follows them as the last argument."""

    name: str
    casts: tuple[str, ...]
    takes_now: bool = True

    def statement(self, now: str = "clock_timestamp()") -> str:
        """Return `select heliograph.name($1::.., ..)`. now: the SQL expression for p_now."""
        arguments = [f"${n}::{cast}" for n, cast in enumerate(self.casts, 1)]
        if self.takes_now:
            arguments.append(now)
        return f"select heliograph.{self.name}({', '.join(arguments)})"


_FUNCTIONS = (
    KernelFunction("start_runs", ("text", "jsonb")),
    KernelFunction("enqueue", ("text", "jsonb")),
    KernelFunction("claim", ("text", "jsonb", "text", "integer", "float8")),
    KernelFunction("fail_unclaimable", ("text", "jsonb")),
    KernelFunction("renew", ("text", "jsonb", "float8")),
    KernelFunction("release", ("text", "jsonb")),
    KernelFunction("append", ("text", "jsonb")),
    KernelFunction("begin_call", ("text", "jsonb")),
    KernelFunction("record_call", ("text", "jsonb")),
    KernelFunction("suspend", ("text", "jsonb")),
    KernelFunction("defer", ("text", "jsonb")),
    KernelFunction("finish", ("text", "jsonb")),
    KernelFunction("stop", ("text", "jsonb")),
    KernelFunction("stop_runs", ("text", "jsonb")),
    KernelFunction("react", ("text", "jsonb")),
    KernelFunction("report", ("text", "jsonb")),
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
