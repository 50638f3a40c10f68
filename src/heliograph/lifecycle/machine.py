"""Move a turn from phase to phase. Pure: a cue in, a phase out (LC-60 to LC-66)."""

from __future__ import annotations

from heliograph.errors import HeliographError
from heliograph.lifecycle.phases import NEXT, STOP, Phase


class BadTransition(HeliographError):
    default_code = "bad_transition"


def step(phase: Phase, cue: str, *, resume_at: Phase = Phase.PLAN) -> Phase:
    """The phase that `cue` leads to.

    `resume_at` is where iteration_needed goes: PLAN, or ACT where planning again is not worth a model call (G-01).
    Raises BadTransition for a cue that means nothing in this phase (LC-66).
    """
    if phase is Phase.TERMINATE:
        raise BadTransition(f"cue {cue!r} came in phase terminate, which is the last: the turn can only deliver")
    if cue in STOP:
        return Phase.TERMINATE
    if resume_at not in (Phase.PLAN, Phase.ACT):
        raise BadTransition(f"an iteration resumes at plan or act, not at {resume_at}")
    following = NEXT.get((phase, cue))
    if following is None:
        known = sorted(c for p, c in NEXT if p is phase) + sorted(STOP)
        raise BadTransition(f"cue {cue!r} means nothing in phase {phase}; it takes {', '.join(known)}")
    return resume_at if cue == "iteration_needed" else following
