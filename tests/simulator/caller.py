"""Sequences of kernel calls that make sense, and calls that make none: what both kernels are asked alike."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.simulator.kernel_calls_waits import WaitCalls

# What a caller may send by mistake, wherever it fits into JSON. Whole floats are left out: 3.0 is an integer to the
# twin and text to a cast in SQL; nothing that the runtime sends has one there.
JUNK: list[Any] = [None, "", "x", "7", -1, 0, 3, 10**12, 0.25, True, [], {}, [1], {"seq": 1}, "é\u2028", "a\u0000b"]
# PostgreSQL does not look at these lists where there is nothing to compare with them.
_NOT_SPOILED = ("mark_published", "sweep_owed")
_WEIGHTS = {
    "start_runs": 2, "enqueue": 3, "claim": 9, "renew": 2, "release": 1, "append": 3, "finish": 5, "react": 3,
    "begin_call": 3, "record_call": 3, "suspend": 7, "defer": 1, "report": 6, "take_commands": 2, "stop": 2, "stop_runs": 0.3,
    "sweep_leases": 2, "sweep_expired": 2, "sweep_queued": 1, "sweep_waits": 2, "sweep_stops": 2, "sweep_reports": 2,
    "sweep_stuck": 1, "sweep_bells": 1, "sweep_owed": 3, "read_outbox": 1, "mark_published": 1, "set_limits": 1,
    "put_boxes": 1, "fork_boxes": 2, "replace_boxes": 2, "read_box": 1, "prune": 1,
}  # fmt: skip


class Caller(WaitCalls):
    """Makes up calls from one seed."""

    def calls(self, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for _ in range(count):
            self.pass_time()
            [function] = self.dice.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))
            args = getattr(self, function)()
            if self.dice.random() < 0.25 and function not in _NOT_SPOILED:
                args = self._spoil(args)
            yield function, ("p", *args)

    def heard(self, function: str, args: tuple[Any, ...], answer: Any) -> None:
        self.hear(function, args, answer)

    def _spoil(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """One value somewhere in the JSON becomes junk, or goes missing."""
        spoiled = list(copy.deepcopy(args))
        places = [(spoiled, n) for n, arg in enumerate(spoiled) if isinstance(arg, list)]
        places += [place for arg in spoiled for place in _places(arg)]
        if not places:
            return args
        container, key = self.dice.choice(places)
        if isinstance(container, dict) and self.dice.random() < 0.3:
            del container[key]
        else:
            container[key] = self.dice.choice(JUNK)
        return tuple(spoiled)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
