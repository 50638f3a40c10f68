from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.turn.phases import NEXT, STOP, BadTransition, Phase, next_phase

CUES = sorted({cue for _, cue in NEXT} | STOP | {"", "READY", "done"})


@pytest.mark.proves("LC-01")
def test_lifecycle_has_five_phases_in_order() -> None:
    assert [str(phase) for phase in Phase] == ["init", "plan", "act", "reflect", "terminate"]


@pytest.mark.parametrize(
    ("phase", "cue", "following"),
    [
        pytest.param(Phase.INIT, "ready", Phase.PLAN, marks=pytest.mark.proves("LC-60")),
        pytest.param(Phase.PLAN, "plan_ready", Phase.ACT, marks=pytest.mark.proves("LC-61")),
        pytest.param(Phase.ACT, "action_complete", Phase.REFLECT, marks=pytest.mark.proves("LC-62")),
        (Phase.REFLECT, "iteration_needed", Phase.PLAN),
        pytest.param(Phase.REFLECT, "goal_achieved", Phase.TERMINATE, marks=pytest.mark.proves("LC-64")),
    ],
)
def test_cue_of_a_phase_leads_to_the_next_one(phase: Phase, cue: str, following: Phase) -> None:
    assert next_phase(phase, cue) is following


@pytest.mark.proves("LC-65", "G-13")
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.TERMINATE])
@pytest.mark.parametrize("cue", ["halt", "halt_signal", "error_unrecoverable"])
def test_halt_or_an_unrecoverable_error_ends_any_phase(phase: Phase, cue: str) -> None:
    assert next_phase(phase, cue) is Phase.TERMINATE


@pytest.mark.proves("LC-66")
@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("cue", CUES)
def test_every_other_pair_of_phase_and_cue_is_rejected_with_the_valid_cues(phase: Phase, cue: str) -> None:
    if phase is not Phase.TERMINATE and ((phase, cue) in NEXT or cue in STOP):
        assert next_phase(phase, cue) in Phase
        return
    with pytest.raises(BadTransition) as caught:
        next_phase(phase, cue)
    assert repr(cue) in caught.value.message
    assert str(phase) in caught.value.message


@pytest.mark.proves("LC-02")
@given(st.lists(st.sampled_from(CUES), max_size=30))
def test_any_sequence_of_cues_follows_the_table_and_ends_in_terminate(cues: list[str]) -> None:
    allowed = {(phase, following) for (phase, _), following in NEXT.items()} | {(p, Phase.TERMINATE) for p in Phase}
    visited = [Phase.INIT]
    for cue in cues:
        try:
            visited.append(next_phase(visited[-1], cue))
        except BadTransition:
            visited.append(visited[-1])
    assert all(a is b or (a, b) in allowed for a, b in pairwise(visited))
    if Phase.TERMINATE in visited:
        assert set(visited[visited.index(Phase.TERMINATE) :]) == {Phase.TERMINATE}
