"""The memory of a run: the counters and joins that its reactions record for later reactions, in the same commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from heliograph.codes import RESULT_MISSING
from heliograph.reactive.ending import Ending
from heliograph.reactive.workflow import Workflow
from heliograph.records import RunView
from heliograph.signals.payload import copied
from heliograph.types import JsonObject

RECEIVED_TRACE_ID = (
    "trace_id"  # in the memory of a run that executes a task from another system: the trace of its sender
)

TRACE_PARENT = (
    "traceparent"  # in the memory of a run whose caller is traced: the caller's span, as W3C Trace Context writes it
)


SESSION = "session"  # in the memory of a session: `open`, or `closed` once it takes no more messages
ACTIVATIONS_BEFORE = (
    "activations_before"  # in the memory: how many turns there were before the last message from outside
)
OPEN = "open"
CLOSED = "closed"  # also the reason of its end
STOPPED_BY = (
    "stopped_by"  # in the memory of a run that ends before its work is done; a session that was closed has none
)

ZEROS: Mapping[str, Any] = {
    "joins": {}, "turns": 0, "failed": 0, "partial": 0, "skipped": 0, "usage": {"inputTokens": 0, "outputTokens": 0},
}  # fmt: skip
COUNTERS = ZEROS.keys() - {"joins"}
CHANGED_IN_PLACE = frozenset(("joins", "usage"))  # by reactions; they replace all other values


def new_memory(workflow: Workflow, now: datetime) -> dict[str, Any]:
    """The memory of a new run, as far as its counters are not zero: its agents, and its start."""
    return {
        "started_at": now.isoformat(),
        "agents": sorted(workflow.agents),  # a run keeps the agents that it started with, also after a deployment
    }


def complete_memory(memory: Mapping[str, Any], workflow: Workflow, now: datetime) -> dict[str, Any]:
    """A memory with all its entries, for a reaction to change. One that was edited may lack those of a new run, too."""
    complete: dict[str, Any] = {**ZEROS, "joins": {}, "usage": {"inputTokens": 0, "outputTokens": 0}, **memory}
    for key in CHANGED_IN_PLACE & memory.keys():
        complete[key] = copied(memory[key])
    if not ("started_at" in complete and "agents" in complete):
        complete = {**new_memory(workflow, now), **complete}
    return complete


def stored_memory(memory: dict[str, Any], *, is_over: bool = False) -> JsonObject:
    """A memory as the run keeps it: without the counters that are zero. Each commit of a run writes it as a whole.

    is_over: the run ends with this commit. Its workflow:end has the counters, and no reaction follows that reads them.
    """
    stored = memory.copy()
    for key, zero in ZEROS.items():
        if key in stored and (stored[key] == zero or (is_over and key in COUNTERS)):
            del stored[key]
    return stored


def is_active(run: RunView) -> bool:
    """Whether signals wake agents and turns that wait begin: not in a run that ends, unless it is a session that was closed.

    A closed session takes no more messages. From then on it is like any other run: it ends once no turn is open.
    """
    return run.status == "running" or (run.memory.get(SESSION) == CLOSED and STOPPED_BY not in run.memory)


def counted_activations(run: RunView) -> int:
    """How many of a run's turns count toward `max_activations`: a message from outside restarts the count."""
    before: int = run.memory.get(ACTIVATIONS_BEFORE, 0)
    return run.activations - before


def count_ending(memory: dict[str, Any], ending: Ending) -> None:
    """Count a turn that ended, and its tokens."""
    memory["turns"] += 1
    memory["failed"] += ending.outcome not in ("success", "partial", "canceled")
    is_lacking = ending.outcome == "partial" or (ending.error or {}).get("code") == RESULT_MISSING
    memory["partial"] += is_lacking
    usage = memory["usage"]
    usage["inputTokens"] += ending.usage[0]
    usage["outputTokens"] += ending.usage[1]


def metrics_of(memory: dict[str, Any], activations: int, now: datetime) -> JsonObject:
    """The metrics of a run that ends now. activations: those of the whole run."""
    started_at = datetime.fromisoformat(memory["started_at"])
    return {
        "turns": memory["turns"], "failed": memory["failed"], "skipped": memory["skipped"], "activations": activations,
        "usage": dict(memory["usage"]), "duration_ms": max(0, round((now - started_at).total_seconds() * 1000)),
    }  # fmt: skip
