"""The state of a turn, and the signals of its phases: nothing else drafts them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from heliograph.definitions.plan import tools_of
from heliograph.signals.error_payload import error_payload
from heliograph.signals.model import Draft
from heliograph.signals.payload import truncated
from heliograph.turn.phases import NEXT, Phase, next_phase
from heliograph.turn.rounds import Rounds
from heliograph.types import JsonObject

_DECISION = ("decision", "confidence", "reason", "resume_at")

# The signal of a phase: its name and payload, and the cue that ends the phase.
Step: TypeAlias = tuple[str, JsonObject, str]

# An agent without hooks has no plan, and its act phase is one step.
ONE_STEP_PLANNED: Step = ("plan_ready", {"steps": 1, "tools_required": []}, "plan_ready")
ONE_STEP_EXECUTED: Step = ("action_complete", {"steps_executed": 1, "success": True}, "action_complete")


class Turn(Struct, frozen=True):
    """The state of the machine. activation_id: the signal that activated the agent. ready: the payload of the signal `ready`.

    rounds: the progress of an agent with hooks; None for an agent without. recoverable: by the code of an error, whether a retry may
    help, in place of the error's own value.
    """

    agent: str
    activation_id: str
    ready: JsonObject
    phase: Phase = Phase.INIT
    rounds: Rounds | None = None
    recoverable: Mapping[str, bool] = field(default_factory=dict)


def through(turn: Turn, now: datetime, steps: Sequence[Step]) -> tuple[Turn, list[Draft]]:
    """Emit the signal of each phase while the turn is in that phase; then its cue moves the turn to the next phase."""
    drafts, phase = [], turn.phase
    for name, payload, cue in steps:
        drafts.append(Draft(name, payload, turn.agent, turn.activation_id, now))
        phase = NEXT.get((phase, cue)) or next_phase(phase, cue)
    return replace(turn, phase=phase), drafts


def ready(turn: Turn) -> Step:
    return "ready", turn.ready, "ready"


def plan_ready(plan: JsonObject | None) -> Step:
    """Without a plan, the work of the act phase is one step."""
    if plan is None:
        return ONE_STEP_PLANNED
    steps = plan.get("steps")
    payload: JsonObject = {
        "steps": len(steps) if isinstance(steps, list) else 1,
        "tools_required": list(dict.fromkeys(tools_of(plan))),
        "plan": truncated(plan),
    }
    return "plan_ready", payload, "plan_ready"


def action_complete(acted: JsonObject | None) -> Step:
    """acted: the result of an act phase; None for an agent without hooks, which acts once."""
    if acted is None:
        return ONE_STEP_EXECUTED
    results: Any = acted["results"]
    payload: JsonObject = {"steps_executed": len(results), "success": acted["success"], "actions": truncated(results)}
    return "action_complete", payload, "action_complete"


def reflection_complete(decision: JsonObject, cue: str) -> Step:
    shown: JsonObject = {key: decision[key] for key in _DECISION if key in decision}
    if decision.get("learnings"):
        shown["learnings"] = truncated(decision["learnings"])
    return "reflection_complete", shown, cue


def error_draft(turn: Turn, error: JsonObject, details: JsonObject, now: datetime) -> Draft:
    return draft(turn, "error", error_payload(error, details), now)


def draft(turn: Turn, name: str, payload: JsonObject, now: datetime) -> Draft:
    return Draft(name, payload, turn.agent, turn.activation_id, now)
