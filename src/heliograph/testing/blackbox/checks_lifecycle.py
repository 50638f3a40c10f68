"""Checks of the lifecycle: the phases of each agent in the log."""

from __future__ import annotations

from heliograph.testing.blackbox.check import Check
from heliograph.testing.blackbox.evidence import Evidence, payload_of

PHASES = ("ready", "plan_ready", "action_complete", "reflection_complete", "terminated")


def _follow(run: Evidence, first: str, second: str) -> bool:
    return 0 <= run.place(first, "writer") < run.place(second, "writer")


def _is_ordered(run: Evidence, agent: str) -> bool:
    return [each["name"] for each in run.log if each["name"] in PHASES and each in run.named("*", agent)] == list(
        PHASES
    )


def _reports(run: Evidence, name: str, **fields: object) -> bool:
    [payload] = [payload_of(each) for each in run.named(name, "writer")]
    return all(key in payload and (value is ... or payload[key] == value) for key, value in fields.items())


LIFECYCLE = (
    Check("LC-01", "chain", "the phases of a turn are in order", lambda run: _is_ordered(run, "writer")),
    Check("LC-02", "chain", "every agent goes through them", lambda run: _is_ordered(run, "critic") and _is_ordered(run, "printer")),
    Check("LC-15", "chain", "ready has capabilities and version", lambda run: _reports(run, "ready", capabilities=..., version=...)),
    Check("LC-25", "chain", "plan_ready has steps and tools_required", lambda run: _reports(run, "plan_ready", steps=..., tools_required=...)),
    Check("LC-35", "chain", "action_complete has steps_executed and success", lambda run: _reports(run, "action_complete", steps_executed=..., success=True)),
    Check("LC-43", "chain", "reflection_complete has a decision", lambda run: _reports(run, "reflection_complete", decision=...)),
    Check("LC-44", "chain", "the decision on success is goal_achieved", lambda run: _reports(run, "reflection_complete", decision="goal_achieved")),
    Check("LC-55", "chain", "terminated has status and outputs", lambda run: _reports(run, "terminated", status=..., outputs=...)),
    Check("LC-60", "chain", "init is followed by plan", lambda run: _follow(run, "ready", "plan_ready")),
    Check("LC-61", "chain", "plan is followed by act", lambda run: _follow(run, "plan_ready", "action_complete")),
    Check("LC-62", "chain", "act is followed by reflect", lambda run: _follow(run, "action_complete", "reflection_complete")),
    Check("LC-64", "chain", "reflect is followed by terminate", lambda run: _follow(run, "reflection_complete", "terminated")),
    Check("LC-65", "stop", "a halt ends the turn, which does not emit its signal",
          lambda run: run.has_ended and len(run.ends("writer")) == 1 and not run.named("draft:ready")),
    Check("LC-80", "calls", "an agent continues after a recoverable error",
          lambda run: 0 <= run.place("error", "editor") < run.place("agent:completed", "editor")
          and payload_of(run.named("agent:completed", "editor")[0])["output"] == "done"),
    Check("LC-81", "failure", "an unrecoverable error ends the turn",
          lambda run: run.has_ended and bool(run.named("agent:activated", "writer")) and not run.named("draft:ready")),
)  # fmt: skip
