"""The oracle of taint notices a runtime that records less, or more, than the turns have read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.reactive.reaction import Reaction
from heliograph.reactive.reaction_builder import ReactionBuilder
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.simulator.simulate import Case, simulate
from heliograph.turn.taint import Taint

SEEDS = range(12)


def found_kinds() -> set[str]:
    """The kinds of violations that the oracles find in a few seeds."""
    in_memory = InMemoryKernel()
    return {violation.kind for seed in SEEDS for violation in simulate(Case(seed), in_memory).violations}


@pytest.mark.more
@pytest.mark.proves("S24")
def test_simulator_finds_no_wrong_taint_in_this_runtime() -> None:
    assert found_kinds() == set()


@pytest.mark.more
@pytest.mark.parametrize("mark", [False, True])
def test_turn_that_ends_with_a_wrong_taint_is_noticed(monkeypatch: pytest.MonkeyPatch, mark: bool) -> None:
    monkeypatch.setattr(Taint, "is_tainted", property(lambda _taint: mark))
    assert found_kinds() == {"taint_of_turn"}


@pytest.mark.more
@pytest.mark.parametrize("mark", [False, True])
def test_change_without_the_mark_of_its_turn_is_noticed(monkeypatch: pytest.MonkeyPatch, mark: bool) -> None:
    update = ReactionBuilder.update

    def update_wrongly(builder: Any, *args: Any, is_untrusted: bool, **more: Any) -> None:
        update(builder, *args, is_untrusted=mark, **more)

    monkeypatch.setattr(ReactionBuilder, "update", update_wrongly)
    assert "taint_of_change" in found_kinds()


@pytest.mark.more
def test_state_that_records_another_key_than_the_log_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    to_item = Reaction.to_item

    def recorded(made: Reaction) -> dict[str, Any]:
        memory = None if made.memory is None else {**made.memory, "untrusted_keys": []}
        return to_item(replace(made, memory=memory))

    monkeypatch.setattr(Reaction, "to_item", recorded)
    assert {"taint_of_state", "taint_of_change"} <= found_kinds()
