"""Everything through which one turn reaches what is outside of it."""

from __future__ import annotations

from msgspec import Struct

from heliograph.execution.turn_inputs import TurnInputs
from heliograph.execution.turn_ledger import TurnLedger
from heliograph.world.seam import World


class Seams(Struct, frozen=True):
    """The world, the kernel calls and the inputs of one turn; those of a recorded turn write on its tape."""

    world: World
    ledger: TurnLedger
    inputs: TurnInputs
