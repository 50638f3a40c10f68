"""Applications, tests and arguments that cannot be simulated are rejected at once."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.errors import InvalidInput, SetupError
from heliograph.models import ScriptedModel
from heliograph.testing import (
    Simulation,
    crash_at,
    crash_at_every_await,
    simulate,
    virtual_time,
)
from tests.faces.test_simulated_applications import refunded, serve, shop


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "model openai-chat:gpt-5 has no stub"),
        ({"tools": {"fetch": print}}, "has no tool fetch that is a function"),
    ],
)
def test_application_that_cannot_be_simulated_is_rejected_at_once(options: dict[str, Any], problem: str) -> None:
    @virtual_time
    async def scenario(sim: Simulation) -> None:
        sim.serve(shop, **options)

    with pytest.raises((InvalidInput, SetupError), match=problem):
        scenario()


def test_application_is_served_once() -> None:
    @virtual_time
    async def scenario(sim: Simulation) -> None:
        serve(sim)
        with pytest.raises(InvalidInput, match="served already"):
            serve(sim)

    scenario()


def test_script_across_turns_is_rejected_where_workers_die() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.serve(shop, models=ScriptedModel(["one"]))

    virtual_time(scenario)()
    with pytest.raises(InvalidInput, match="pass per_turn=True"):
        crash_at_every_await(scenario)


def test_decorators_keep_fixtures_and_methods_and_reject_plain_functions() -> None:
    class TestShop:
        @virtual_time
        async def test_name(self, sim: Simulation, fixture: str) -> str:
            return f"{fixture} {sim.seed}"

    assert TestShop().test_name(fixture="x") == "x 0"
    for wrong, problem in ((lambda: None, "must be an async function"), (_without_arguments, "as its first argument")):
        with pytest.raises(InvalidInput, match=problem):
            virtual_time(wrong)


async def _without_arguments() -> None: ...


@pytest.mark.parametrize("arguments", [{"first": 0}, {"every": True}])
def test_numbers_of_awaits_are_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be a whole number from 1"):
        crash_at_every_await(refunded, **arguments)
    with pytest.raises(InvalidInput, match="has the awaits 1 to"):
        crash_at(refunded, 10_000)


@pytest.mark.parametrize("seeds", [0, [], "12", [1.5], True, None])
def test_seeds_are_checked(seeds: Any) -> None:
    with pytest.raises(InvalidInput, match="seeds must be"):
        simulate(seeds=seeds)
