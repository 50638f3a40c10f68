"""The memory of a run: the counters and joins that its reactions record for later reactions, in the same commit. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from heliograph.codes import RESULT_MISSING
from heliograph.reactive.ending import Ending
from heliograph.reactive.workflow import Workflow
from heliograph.types import JsonObject

RECEIVED_TRACE_ID = (
    "trace_id"  # in the memory of a run that executes a task from another system: the trace of its sender
)

TRACE_PARENT = (
    "traceparent"  # in the memory of a run whose caller is traced: the caller's span, as W3C Trace Context writes it
)


MEMORY_KEYS = frozenset(("started_at", "agents", "joins", "turns", "failed", "partial", "skipped", "usage"))
CHANGED_IN_PLACE = frozenset(("joins", "usage"))  # by reactions; they replace all other values


def new_memory(workflow: Workflow, now: datetime) -> dict[str, Any]:
    """The memory of a new run: its agents, its joins and its counters."""
    return {
        "started_at": now.isoformat(),
        "agents": sorted(workflow.agents),  # a run keeps the agents that it started with, also after a deployment
        "joins": {},
        "turns": 0,
        "failed": 0,
        "partial": 0,
        "skipped": 0,
        "usage": {"inputTokens": 0, "outputTokens": 0},
    }


def count_ending(memory: dict[str, Any], ending: Ending) -> None:
    """Count a turn that ended, and its tokens."""
    memory["turns"] += 1
    memory["failed"] += ending.outcome not in ("success", "partial", "canceled")
    is_lacking = ending.outcome == "partial" or (ending.error or {}).get("code") == RESULT_MISSING
    memory["partial"] = memory.get("partial", 0) + is_lacking
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
