"""Checks of turns: one delivery each, also when the worker is killed."""

from __future__ import annotations

from heliograph.testing.blackbox.check import Check
from heliograph.testing.blackbox.evidence import Evidence, agent_of, payload_of


def _delivers_once(run: Evidence) -> bool:
    activations = len(run.named("agent:activated"))
    return run.has_ended and 0 < activations == len(run.ends())


def _never_overlaps(run: Evidence) -> bool:
    """Whether each agent ends a turn before it begins its next one: an activation may wait, but ready begins a turn."""
    active: set[str] = set()
    for each in run.log:
        agent = agent_of(each)
        if each["name"] == "ready":
            if agent in active:
                return False
            active.add(str(agent))
        elif each in run.ends():
            active.discard(str(agent))
    return bool(run.log)


def _is_recovered(run: Evidence) -> bool:
    outputs = [payload_of(each).get("output") for each in run.ends("writer")]
    return run.has_ended and 0 < run.disturbed < len(run.log) and outputs == ["done"]


def _repeats_nothing(run: Evidence) -> bool:
    return run.has_ended and run.disturbed > 0 and run.effects == ["first", "last"]


TURNS = (
    Check("L0-01", "chain", "an agent runs one turn at a time", lambda run: _never_overlaps(run) and
          len(run.named("ready", "leading")) == len(run.ends("leading")) == 2),
    Check("L0-03", "failure", "a failed turn has a deliverable, too", _delivers_once),
    Check("L0-06", "chain", "one activation is one turn and one delivery", _delivers_once),
    Check("L0-07", "kill", "a turn whose worker was killed delivers once", _delivers_once),
    Check("L0-14", "calls", "a turn that waits for others continues and ends", _delivers_once),
    Check("L0-48", "calls", "delegations are turns of their own",
          lambda run: [len(run.ends(agent)) for agent in ("editor", "author", "critic")] == [1, 1, 1]),
    Check("L0-72", "chain", "a turn that ended takes no further part in the log",
          lambda run: run.place("agent:completed", "critic") > max(run.place("terminated", "critic"), run.place("ready", "critic")) >= 0),
    Check("L0-80", "stop", "a stopped turn delivers, too", _delivers_once),
    Check("L0-110", "kill", "finished work is not repeated after a kill -9", _repeats_nothing),
    Check("L0-111", "kill", "another worker continues the turn of a killed worker", _is_recovered),
)  # fmt: skip
