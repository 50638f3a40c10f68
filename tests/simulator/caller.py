"""Sequences of valid and invalid kernel calls, for both kernels alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulator.junk import spoil
from tests.simulator.kernel_calls_waits import WaitCalls

# PostgreSQL does not read these lists while it has no rows to compare them with.
_NOT_SPOILED = (
    "claim",
    "finish_and_claim",
    "start_and_claim",
    "report_and_claim",
    "fail_unclaimable",
    "take_commands",
    "command_pools",
    "take_halts",
    "mark_published",
    "sweep_pending_reactions",
    "read_shared_log",
    "first_failure",
    "read_conversation",
)
_WEIGHTS = {
    "start_runs": 2, "enqueue": 3, "claim": 9, "renew": 2, "release": 1, "append": 3, "finish": 5, "finish_and_claim": 2, "start_and_claim": 1, "report_and_claim": 2, "react": 3,
    "begin_call": 3, "record_call": 3, "suspend": 7, "defer": 1, "report": 6, "take_commands": 2, "command_pools": 1, "take_halts": 1, "stop": 2, "stop_runs": 0.3,
    "sweep_leases": 2, "sweep_expired": 2, "sweep_queued": 1, "sweep_waits": 2, "sweep_stops": 2, "sweep_reports": 2,
    "sweep_stuck": 1, "fail_unclaimable": 0.5, "sweep_bells": 1, "sweep_pending_reactions": 3, "declare_wire": 0.3, "read_outbox": 1, "mark_published": 1, "set_limits": 1,
    "read_box": 1, "read_shared_log": 1, "first_failure": 0.5, "read_conversation": 1,
}  # fmt: skip
CALLED = frozenset(_WEIGHTS)


class Caller(WaitCalls):
    """Generates calls from one seed."""

    def calls(self, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for _ in range(count):
            self.pass_time()
            [function] = self.dice.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))
            args = getattr(self, function)()
            if self.dice.random() < 0.25 and function not in _NOT_SPOILED:
                args = spoil(args, self.dice)
            yield function, ("p", *args)

    def learn(self, function: str, args: tuple[Any, ...], answer: Any) -> None:
        self.learn_from(function, args, answer)
