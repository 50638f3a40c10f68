"""Make a failing case small: a smaller world, then fewer faults, then fewer deviations from first come, first served.

Every step keeps the class of the failure. The result is JSON, and outlives the
seed: a refactoring changes the meaning of a seed sooner than that of a list of
faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

from heliograph.testing.scenarios.building_blocks import Size
from heliograph.testing.simulator.simulate import Case, Result

T = TypeVar("T")

_SIZES = sorted(
    (Size(runs, workers, messages) for runs, workers, messages in product((1, 2, 3, 4), (1, 2, 3), (0, 1, 2, 4))),
    key=lambda size: (size.runs * (2 + size.messages) * size.workers, size.runs, size.workers),
)
_TRIES = 300


class Shrinker:
    """Shrinks failing cases. run: simulates a case; `runs` counts the simulations."""

    def __init__(self, run: Callable[[Case], Result]):
        self._run = run
        self.runs = 0

    def shrink(self, case: Case) -> Result:
        """The smallest case found whose first violation is of the same kind. Raises ValueError when `case` is fine."""
        found = self._play(case)
        if found.kind is None:
            raise ValueError(f"seed {case.seed} does not fail: there is nothing to shrink")
        kind = found.kind
        found = self._smaller_world(found, kind)
        found = self._fewer_faults(found, kind)
        found = self._smaller_world(found, kind)  # a smaller world may be enough for the remaining faults
        return self._fewer_deviations(found, kind)

    def _smaller_world(self, found: Result, kind: str) -> Result:
        for size in _SIZES:
            if size == found.case.size:
                break
            smaller = self._play(replace(found.case, size=size))
            if smaller.kind == kind:
                return smaller
        return found

    def _fewer_faults(self, found: Result, kind: str) -> Result:
        def fails(kept: Sequence[str]) -> bool:
            return self._play(replace(found.case, faults=frozenset(kept))).kind == kind

        kept = minimize(list(dict.fromkeys(found.faults)), fails)
        return self._better(found, replace(found.case, faults=frozenset(kept)), kind)

    def _fewer_deviations(self, found: Result, kind: str) -> Result:
        def fails(kept: Sequence[int]) -> bool:
            return self._play(replace(found.case, deviations=frozenset(kept))).kind == kind

        kept = minimize(found.deviations, fails)
        return self._better(found, replace(found.case, deviations=frozenset(kept)), kind)

    def _better(self, found: Result, case: Case, kind: str) -> Result:
        smaller = self._play(case)
        return smaller if smaller.kind == kind else found

    def _play(self, case: Case) -> Result:
        self.runs += 1
        return self._run(case)


def minimize(items: list[T], fails: Callable[[Sequence[T]], bool], tries: int = _TRIES) -> list[T]:
    """Find a short list that still fails, by omitting parts of it: halves first, then ever smaller parts (ddmin)."""
    if fails([]):
        return []
    parts = 2
    while len(items) > 1 and tries > 0:
        size = -(-len(items) // parts)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            tries -= 1
            if fails(rest):
                items, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(items), parts * 2)
    return items
