"""The five phases of a turn and the only moves between them. Source: lifecycle spec, "Lifecycle Transitions"."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    INIT = "init"
    PLAN = "plan"
    ACT = "act"
    REFLECT = "reflect"
    TERMINATE = "terminate"


# iteration_needed goes to plan, as the prose, both diagrams and the controller say; the table's `act` is the
# payload's choice (G-01). Cues in STOP lead to TERMINATE from any phase (LC-65); both spellings of each (G-13).
NEXT: dict[tuple[Phase, str], Phase] = {
    (Phase.INIT, "ready"): Phase.PLAN,
    (Phase.PLAN, "plan_ready"): Phase.ACT,
    (Phase.ACT, "action_complete"): Phase.REFLECT,
    (Phase.REFLECT, "iteration_needed"): Phase.PLAN,
    (Phase.REFLECT, "goal_achieved"): Phase.TERMINATE,
}
STOP = frozenset({"halt", "halt_signal", "error_unrecoverable"})
