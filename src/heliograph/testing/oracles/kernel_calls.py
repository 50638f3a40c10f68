"""The oracles: they check every kernel call of a simulated run.

They keep their own records, made only from the arguments and answers of calls,
and compare the heads with them after each call. A broken rule therefore shows at
the call that breaks it, before it does damage
(docs/internals/kernel.md). `final_state` checks the rows at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.requests import WITH_CLAIM
from heliograph.testing.kernel.backend import Backend
from heliograph.testing.kernel.tables import Row, interval
from heliograph.testing.oracles.circuits import CircuitOracle
from heliograph.testing.oracles.forks import ForkOracle
from heliograph.testing.oracles.heads import MAKES
from heliograph.testing.oracles.rates import RateOracle
from heliograph.testing.oracles.stops import StopOracle
from heliograph.testing.oracles.waits import WaitOracle

OVERDUE_SECONDS = 80.0  # longer than any crash, freeze or cut lasts, with the sweep that follows it
_TOGETHER = ("start_runs", "append", "finish", "suspend", "begin_call", "record_call", "report")

# The functions that also claim: the one that does the first part, and the key of its answers.
_CARRIERS = {both: (first, key) for first, (both, key) in WITH_CLAIM.items()}


class Oracles(WaitOracle, StopOracle):
    """Receives every event of the stage; `violations` lists the broken rules, `counters` the events."""

    def __init__(self, backend: Backend, project: str):
        super().__init__()
        self.backend = backend
        self.project = project
        self.circuits = CircuitOracle(self.books, self.count, self.blame)
        self.rates = RateOracle(self.count, self.blame)
        self.forks = ForkOracle(backend, project, self.books, self.count, self.blame)

    def effect(self, key: str, *, is_once: bool = True) -> None:
        """Record that a turn, or one of its steps, changed the outside world."""
        self.forks.check_effect(key)
        self.books.effects[key] += 1
        self.books.effect_times.setdefault(key, self.books.now)
        if is_once and self.books.effects[key] > 1:
            self.blame("effect_twice", f"{key} happened {self.books.effects[key]} times")

    def step_effect(self, turn_id: str, call_id: str, effect: str) -> None:
        """Check an effect of a step: its intent was committed before (K13), and it happens once unless it may be repeated."""
        wait = self.turn(turn_id).waits.get(call_id)
        if wait is None or wait.kind != "inline":
            self.blame("effect_without_intent", f"{turn_id} {call_id}: {wait}")
        self.count(f"effect {effect}")
        key = f"{turn_id} {call_id}"
        if effect == "pure":
            self.books.effects[key] += 1
        else:
            self.effect(key, is_once=effect in ("once", "transactional"))

    def published(self, subject: str, key: str, body: dict[str, Any]) -> None:
        if subject.startswith("cmd."):
            self.count("command published")
            self.check_command(body["agent_turn_id"], body["tool_call_id"], body, is_now=False)
        else:
            self.books.published[key] += 1
            self.check_event(subject, key, body)

    def task_died(self, name: str, error: BaseException) -> None:
        if isinstance(error, StoreUnavailable):
            self.count("task abandoned: StoreUnavailable")
        else:
            self.blame("task_died", f"{name}: {type(error).__name__}: {error}")

    def rejected(self, who: str, function: str, error: KernelRejected) -> None:
        """Blame a rejected call: the constraints are the last line of defence (K21), which no call of the runtime reaches."""
        self.blame("kernel_rejected", f"{who} {function}: {error.message}")

    def calling(self, function: str, args: tuple[Any, ...]) -> None:
        if function in ("start_runs", "start_and_claim") and any(item.get("fork") for item in args[1]):
            self.forks.keep_rows()

    def called(self, who: str, function: str, args: tuple[Any, ...], answer: Any, now: int) -> None:
        if function in _CARRIERS:
            self._called_and_claimed(who, function, args, answer, now)
        else:
            self._called(who, function, args, answer, now, self.backend.heads)

    def _called_and_claimed(self, who: str, function: str, args: tuple[Any, ...], answer: Any, now: int) -> None:
        """Check both parts as calls of their own, with the heads between them."""
        first, key = _CARRIERS[function]
        project, items, targets, worker, limit, lease_seconds = args
        answers, claimed = answer[key], answer["claimed"]
        self.count(f"{function} {'some' if claimed else 'none'}")
        between = self.heads.before_claim(self.backend.heads(project), claimed)
        self._called(who, first, (project, items), answers, now, lambda _: between)
        not_ended = sum(row["outcome"] != "ok" for row in answers) if first == "finish" else 0
        self._called(
            who,
            "claim",
            (project, targets, worker, max(0, limit - not_ended), lease_seconds),
            claimed,
            now,
            self.backend.heads,
        )

    def _called(
        self, who: str, function: str, args: tuple[Any, ...], answer: Any, now: int, heads: Callable[[str], list[Row]]
    ) -> None:
        self.books.now = now
        self._count_answer(function, answer)
        if function == "claim":
            self.heads.check_claim(args, answer, now)
        elif function == "set_limits":
            self.books.limits = answer
            self.books.small.update(args[1])
        elif function in ("begin_call", "suspend"):
            self.circuits.check(function, args[1], answer, now)
            if function == "begin_call":
                self.rates.check(args[1], answer)
        read = getattr(self, function, None)
        if read is not None:
            read(args, answer, now)
        if function == "record_call" and any(item.get("intents") for item in args[1]):
            intents, begun = _intents_of(args[1], answer)
            self.called(who, "begin_call", (args[0], intents), begun, now)
        if function == "start_runs":
            self.forks.started(args[1], answer, now)
        if function in MAKES and not self._is_nothing(answer):
            self.heads.compare(function, heads(self.project), now)

    def check_overdue(self, now: int) -> None:
        """Check that a sweep finds every stuck turn in time."""
        late = now - interval(OVERDUE_SECONDS)
        for turn in self.books.turns.values():
            if turn.ended_by is not None:
                if not turn.is_delivered and turn.ended_at < late and self._waits_for(turn.parent):
                    self.blame(
                        "overdue_report",
                        f"{turn.turn_id} ended at {turn.ended_at}, and {turn.parent} has no report of it",
                    )
                continue
            if turn.human_wait_since is None and turn.expires_at < late:
                self.blame("overdue_turn", f"{turn.turn_id} expired at {turn.expires_at} and is open at {now}")
            if (turn.force_at or now) < late or (turn.order is not None and turn.order[2] < late):
                self.blame(
                    "overdue_stop", f"{turn.turn_id} was to stop at {turn.force_at or turn.order}, and it is {now}"
                )
            for wait in turn.awaited():
                if (wait.deadline or now) < late:
                    self.blame(
                        "overdue_wait", f"{turn.turn_id} {wait.call_id} was due at {wait.deadline}, and it is {now}"
                    )
        for agent_id, token in self.books.tokens.items():
            if token.lease_until < late:
                self.blame("overdue_lease", f"{agent_id} was leased until {token.lease_until}, and it is {now}")

    def _waits_for(self, parent: tuple[str, str] | None) -> bool:
        """Whether the parent's call is still open: a parent that continued without its child needs no report."""
        turn = self.books.turns.get(parent[0]) if parent is not None else None
        return parent is not None and turn is not None and turn.ended_by is None and turn.waits[parent[1]].is_awaited

    def _count_answer(self, function: str, answer: Any) -> None:
        if isinstance(answer, list):
            for row in answer:
                if isinstance(row, dict) and "outcome" in row:
                    code = f" {row['code']}" if row.get("code") else ""
                    self.count(f"{function} {row['outcome']}{code}")
            if function in _TOGETHER and len(answer) > 1:
                self.count(f"{function} together")
            self.count(f"{function} some" if answer else f"{function} none")
        elif isinstance(answer, dict):
            for key, value in answer.items():
                if key not in ("targets", "after") and value and isinstance(value, list | int):
                    self.count(f"{function} {key}", len(value) if isinstance(value, list) else 1)
            for failed in answer.get("failed", ()):
                self.blame("sweep_failed", f"{function}: {failed}")

    @staticmethod
    def _is_nothing(answer: Any) -> bool:
        """Whether a call had no effect, so no head has changed."""
        if isinstance(answer, dict):
            return not any(answer.values())
        return not answer


def _intents_of(items: Any, answer: Any) -> tuple[list[Any], list[Any]]:
    """The intents that results carry as items of begin_call, and its answers to them. A stale or rejected result begins nothing."""
    intents: list[Any] = []
    begun: list[Any] = []
    for item, row in zip(items, answer, strict=True):
        if row["outcome"] in ("ok", "duplicate"):
            owner = {key: item[key] for key in ("agent_id", "turn_id", "epoch")}
            intents += [{**intent, **owner} for intent in item.get("intents") or ()]
            begun += row.get("begun") or ()
    return intents, begun
