"""The five phases of a turn, and the signals that move it from one to the next."""

from __future__ import annotations

from enum import StrEnum

from heliograph.errors import HeliographError


class Phase(StrEnum):
    INIT = "init"
    PLAN = "plan"
    ACT = "act"
    REFLECT = "reflect"
    TERMINATE = "terminate"

    __hash__ = str.__hash__  # that of an Enum is a Python function


RESUME_AT_ACT = "iteration_needed_at_act"  # the cue of iteration_needed with resume_at act (G-01)
NEXT: dict[tuple[Phase, str], Phase] = {
    (Phase.INIT, "ready"): Phase.PLAN,
    (Phase.PLAN, "plan_ready"): Phase.ACT,
    (Phase.ACT, "action_complete"): Phase.REFLECT,
    (Phase.REFLECT, "iteration_needed"): Phase.PLAN,
    (Phase.REFLECT, RESUME_AT_ACT): Phase.ACT,
    (Phase.REFLECT, "goal_achieved"): Phase.TERMINATE,
}
# Each ends any phase (LC-65); halt_signal is a synonym of halt (G-13).
STOP = frozenset({"halt", "halt_signal", "error_unrecoverable"})


class BadTransition(HeliographError):
    default_code = "bad_transition"


def next_phase(phase: Phase, cue: str) -> Phase:
    """The phase that follows `phase` on `cue`. Raises BadTransition for a cue that `phase` does not accept."""
    if phase is Phase.TERMINATE:
        raise BadTransition(f"cue {cue!r} came in phase terminate, which is the last: the turn can only deliver")
    if cue in STOP:
        return Phase.TERMINATE
    following = NEXT.get((phase, cue))
    if following is None:
        known = sorted(c for p, c in NEXT if p is phase) + sorted(STOP)
        raise BadTransition(f"phase {phase} does not accept cue {cue!r}; it accepts {', '.join(known)}")
    return following
