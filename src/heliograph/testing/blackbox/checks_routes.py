"""Checks of routes: a MessageRouting chooses the pool of workers that runs a delegation."""

from __future__ import annotations

from collections.abc import Callable

from heliograph.testing.blackbox.check import Check
from heliograph.testing.blackbox.evidence import Evidence, payload_of


def _waits_for_its_pool(run: Evidence) -> bool:
    """Whether the delegate ran only after the other pool had its worker."""
    return 0 < run.disturbed <= run.place("ready", "slow-printer") and run.has_ended


def _remains(run: Evidence) -> bool:
    """Whether a delegate without a route ran before the other pool had its worker."""
    return 0 <= run.place("ready", "plain") < run.disturbed


def _ends_well(run: Evidence) -> bool:
    return run.has_ended and [payload_of(each).get("output") for each in run.ends("editor")] == ["done"]


def _route(identifier: str, text: str, holds: Callable[[Evidence], bool]) -> Check:
    return Check(identifier, "routes", text, holds, "pool_worker")


ROUTES = (
    _route("RTE-01", "an application with a MessageRouting runs", _ends_well),
    _route("RTE-02", "a route of tool calls matches no delegation", lambda run: _remains(run) and _ends_well(run)),
    _route("RTE-03", "slow-* matches the agent slow-printer, and no other", lambda run: _remains(run) and _waits_for_its_pool(run)),
    _route("RTE-05", "the queue of a route is the pool whose worker runs the turn", _waits_for_its_pool),
    _route("RTE-06", "the priority of a route is that of the delegation",
           lambda run: [payload_of(each)["priority"] for each in run.named("delegation")] == ["normal", "high"]),
    _route("RTE-09", "the apiVersion ossa/v0.4.9 is accepted", _ends_well),
)  # fmt: skip
