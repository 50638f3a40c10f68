"""What a set of simulated runs must have seen: an edge, an answer or a fault that never came was never tested."""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.testing.simulate import RATES

_EDGES = (
    "idle -> dispatched",
    "dispatched -> running",
    "running -> idle",
    "running -> dispatched",
    "dispatched -> idle",
)
_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "start_runs": ("started", "duplicate", "conflict"),
    "enqueue": ("queued", "duplicate", "conflict", "unknown_agent", "ended"),
    "claim": ("some", "none"),
    "renew": ("ok", "stale"),
    "append": ("ok", "stale"),
    "finish": ("ok", "conflict", "duplicate", "stale", "together"),
    "react": ("ok", "conflict"),
    "sweep_leases": ("recovered", "ended"),
    "sweep_expired": ("ended",),
    "sweep_bells": ("some", "none"),
    "sweep_owed": ("some", "none"),
    "read_outbox": ("some", "none"),
    "turn": ("success", "failed", "timeout", "canceled"),
    "run": ("success", "failed", "partial"),
}
SOMETIMES = frozenset(
    [*_EDGES, *(f"{function} {answer}" for function, answers in _ANSWERS.items() for answer in answers)]
    + [f"fault {kind}" for kind in RATES]
)


def unreached(counters: Mapping[str, int]) -> list[str]:
    """What SOMETIMES names and `counters` (the sum over many seeds) has never seen."""
    return sorted(name for name in SOMETIMES if not counters.get(name))
