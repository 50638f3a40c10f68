"""Open turns for the tests: an application runs in a simulation until a moment, and its open turns stay as they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from heliograph import Heliograph
from heliograph.harness.resolve import Harnesses
from heliograph.ledger.rows import OpenTurnRow
from heliograph.testing import ServedApplication, Simulation
from heliograph.testing.kernel.jsonb import decode, encode
from heliograph.testing.simulation.simulation import PROJECT
from heliograph.upgrade.check_turn import CheckedApplication, check_turn
from heliograph.upgrade.divergence import TurnDivergence
from tests.recording.simulated import kernel_of, simulated
from tests.upgrade.open_turns import read_open_turns

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def in_flight(
    app: Heliograph, seed: int, until: float, *, state: Any = None, faults: bool = False
) -> list[OpenTurnRow]:
    """Run an application for some virtual seconds, and return its open turns. Nobody answers questions or calls."""

    async def open_turns(sim: Simulation, _served: ServedApplication) -> Any:
        await sim.sleep(until)
        return decode(encode(read_open_turns(kernel_of(sim), PROJECT)))

    rows = simulated(app, seed, open_turns, state=state, faults=faults, record=False, answers=False)
    return msgspec.convert(rows, list[OpenTurnRow])


def checked(app: Heliograph, turns: list[OpenTurnRow]) -> list[TurnDivergence]:
    """The divergences of the turns under an application's code."""
    code = CheckedApplication.of(app.workflow, PROJECT, Harnesses())
    found = (check_turn(code, turn, {}, NOW) for turn in turns)
    return [each for each in found if each is not None]
