"""Run an agent's cleanup functions when its own worker ends or releases the turn; never after a forced halt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, TurnTimedOut
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.step_outcome import invoke
from heliograph.execution.step_recorder import store_call
from heliograph.world.seam import World

log = logging.getLogger("heliograph.execution")

CLEANUP_SECONDS = 10.0  # for all functions of one turn; the default grace of a stop

_Function: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]


class Cleanups:
    """The functions that one run of an agent registered with `ctx.on_cleanup`, in order. earlier: those of the phases before."""

    def __init__(self, earlier: Cleanups | None = None) -> None:
        self.functions: list[_Function] = [] if earlier is None else list(earlier.functions)

    def add(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Register a function for the end of the turn. Raises InvalidInput (`wrong_type`)."""
        if not callable(function):
            raise InvalidInput(
                f"the first argument of on_cleanup must be a function, not {safe_repr(function)}", code="wrong_type"
            )
        self.functions.append((function, args))

    async def run_as_owner(self, owned: OwnedTurn, phase: str) -> None:
        """Run the functions while this worker owns the turn.

        A kernel call checks that first, because a forced halt may not have reached this worker yet. Raises TurnLost.
        """
        await store_call(owned.ledger.append({"phase": phase, "signals_emitted": 0, "signals": []}))
        await self.run(owned)

    async def run(self, owned: OwnedTurn) -> None:
        """Run each function once, the last registered first."""
        functions, self.functions = self.functions[::-1], []
        if not functions:
            return
        world, turn_id = owned.world, owned.claimed.turn_id
        try:
            await owned.inputs.clean_up(lambda: world.within(CLEANUP_SECONDS, _run_all(world, turn_id, functions)))
        except TurnTimedOut:
            log.error("%s: its cleanup took longer than %g s and was cancelled", turn_id, CLEANUP_SECONDS)


async def _run_all(world: World, turn_id: str, functions: Sequence[_Function]) -> None:
    for function, args in functions:
        try:
            await invoke(world, function, args)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # the others still run, and the outcome stays
            log.warning("a cleanup function of %s raised", turn_id, exc_info=error)
