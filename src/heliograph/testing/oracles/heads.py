"""The oracle of heads: the transitions that each function may make, their epochs, and the order of claims.

The transitions are the rows of `head_transitions`, read from the migration that
writes them. This module adds the functions that may make each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from heliograph.ledger.install import migrations
from heliograph.testing.kernel.tables import Row, interval
from heliograph.testing.oracles.records import Books, TurnBook

_STOPS = frozenset({"end", "dispatch"})  # an end is followed by the dispatch of the next turn (K8)
MAKES: Mapping[str, frozenset[str]] = {
    "start_runs": frozenset({"dispatch"}), "enqueue": frozenset({"dispatch"}), "react": frozenset({"dispatch"}),
    "claim": frozenset({"claim"}), "fail_unclaimable": _STOPS, "finish": _STOPS, "suspend": frozenset({"suspend", *_STOPS}),
    "defer": frozenset({"defer", *_STOPS}), "release": frozenset({"release", *_STOPS}), "report": frozenset({"resume"}),
    "stop": frozenset({"stop", *_STOPS}), "sweep_leases": frozenset({"recover", *_STOPS}), "sweep_expired": _STOPS,
    "sweep_stops": frozenset({"stop", *_STOPS}),
    "sweep_waits": frozenset({"resume"}), "sweep_reports": frozenset({"resume"}), "sweep_stuck": frozenset({"resume"}),
    "sweep_queued": frozenset({"dispatch"}),
}  # fmt: skip
# These may end several turns of one agent, one after another.
_SEVERAL = ("sweep_expired", "sweep_stops", "stop")


@dataclass(frozen=True, slots=True)
class Move:
    name: str
    before: str
    after: str
    step: int

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after}"


@cache
def read_moves() -> tuple[Move, ...]:
    """The rows of head_transitions, as the migrations write them."""
    row = re.compile(r"\('(\w+)', '(\w+)', '(\w+)', ([01]), '")
    inserted = [m.sql.partition("insert into heliograph.head_transitions")[2].partition("');")[0] for m in migrations()]
    return tuple(
        Move(name, before, after, int(step)) for text in inserted for name, before, after, step in row.findall(text)
    )


@dataclass(frozen=True, slots=True)
class Head:
    status: str
    turn_id: str | None
    epoch: int
    due_at: int | None = None


_NEW = Head("idle", None, 0)


def head_of(row: Row) -> Head:
    return Head(row["status"], row["active_agent_turn_id"], row["turn_epoch"], row["due_at"])


class HeadOracle:
    """Compares the heads before and after each call. `count` and `blame` as in `oracles.Oracles`."""

    def __init__(self, books: Books, count: Callable[[str], None], blame: Callable[[str, str], None]):
        self.heads: dict[str, Head] = {}
        self._dispatched_at: dict[str, int] = {}  # by agent, while its head is dispatched
        self._books = books
        self._count = count
        self._blame = blame

    def status_of(self, turn: TurnBook) -> str:
        """Return 'queued', or the status of the head before the call that is judged."""
        head = self.heads.get(turn.agent_id, _NEW)
        return head.status if head.turn_id == turn.turn_id else "queued"

    def turn_of(self, agent_id: str) -> str | None:
        """Return the turn that the head had before the call that is judged."""
        return self.heads.get(agent_id, _NEW).turn_id

    def compare(self, function: str, rows: list[Row], now: int) -> None:
        before, self.heads = self.heads, {row["agent_id"]: head_of(row) for row in rows}
        for agent_id, after in self.heads.items():
            earlier = before.get(agent_id, _NEW)
            if earlier != after:
                self._check(function, agent_id, earlier, after, now)
                if after.status == "dispatched":
                    self._dispatched_at[agent_id] = now

    def before_claim(self, rows: list[Row], claimed: list[Row]) -> list[Row]:
        """The heads before a claim in the same call. A deferred head that the call has not moved otherwise is due at the same time as before."""
        taken = {row["agent_id"] for row in claimed}
        return [self._unclaimed(row) if row["agent_id"] in taken else row for row in rows]

    def _unclaimed(self, row: Row) -> Row:
        known, turn_id, epoch = (
            self.heads.get(row["agent_id"], _NEW),
            row["active_agent_turn_id"],
            row["turn_epoch"] - 1,
        )
        due_at = known.due_at if known.turn_id == turn_id else None
        return {**row, "status": "dispatched", "turn_epoch": epoch, "due_at": due_at}

    def _check(self, function: str, agent_id: str, before: Head, after: Head, now: int) -> None:
        if (
            before == replace(after, due_at=before.due_at)
            and after.due_at is None
            and function in ("stop", "sweep_stops")
        ):
            self._count("deferred turn that a stop makes due")
            return
        steps = 0
        for edge in _edges(before, after):
            move = next((m for m in read_moves() if (m.before, m.after) == edge and m.name in MAKES[function]), None)
            if move is None:
                self._blame("illegal_move", f"{function} moved {agent_id} from {edge[0]} to {edge[1]}")
                return
            self._count(str(move))
            steps += move.step
        more = after.epoch - before.epoch - steps
        if more < 0 or more % 2 or (more and function not in _SEVERAL):
            self._blame("epoch", f"{function} moved {agent_id} from {before} to {after}")
        if after.turn_id is not None and after.turn_id != before.turn_id:
            self._check_dispatch(agent_id, after.turn_id, now)

    def _check_dispatch(self, agent_id: str, turn_id: str, now: int) -> None:
        """First come, first served, for each agent."""
        turns = self._books.turns
        waiting = [t for t in self._books.queues.get(agent_id, []) if turns[t].ended_by is None]
        if not waiting or waiting[0] != turn_id:
            self._blame("not_first_in_first_out", f"{agent_id} got {turn_id}, and {waiting[:1]} came first")
        if turn_id in turns:
            turns[turn_id].ready_at = now

    def check_claim(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        """Turns of the worker's pools alone; priority, then first ready time, then agent id (K22); none before it is due, not
        more than may run at once."""
        _, targets, _, limit, _ = args
        most = self._books.limits.get("running_max")
        if most is not None:
            limit = max(0, min(limit, most - len(self._books.tokens)))
        ready: list[tuple[int, int, str]] = []
        for target in targets:
            for is_deferred in (False, True):
                found = [pair for pair in self._ready(target, now) if (pair[1].due_at is not None) == is_deferred]
                found.sort(key=lambda pair: pair[0])
                ready += [place for place, _ in found[:limit]]
        expected = [agent_id for _, _, agent_id in sorted(ready)[:limit]]
        if expected != [row["agent_id"] for row in answer]:
            self._blame("claim_order", f"expected {expected}, got {[row['agent_id'] for row in answer]}")

    def find_unclaimed(self, now: int) -> set[str]:
        """The turns that have waited for a worker for as long as `dispatch_seconds_max` allows (K20)."""
        seconds = self._books.limits.get("dispatch_seconds_max")
        if seconds is None:
            return set()
        return {
            head.turn_id for agent_id, head in self.heads.items()
            if head.status == "dispatched" and head.turn_id is not None
            and (self._dispatched_at[agent_id] if head.due_at is None else head.due_at) <= now - interval(seconds)
        }  # fmt: skip

    def _ready(self, target: dict[str, Any], now: int) -> Iterator[tuple[tuple[int, int, str], Head]]:
        for agent_id, head in self.heads.items():
            turn = self._books.turns.get(head.turn_id or "")
            if head.status != "dispatched" or turn is None or (head.due_at or 0) > now:
                continue
            if (
                self._books.targets[turn.run_id] == target["target"] and turn.pool == target["pool"] and turn.name in target["agents"]
                and target["run_id"] in (None, turn.run_id)
            ):  # fmt: skip
                yield (-turn.priority, turn.ready_at or 0, agent_id), head


def _edges(before: Head, after: Head) -> Iterator[tuple[str, str]]:
    """The moves from one head to the next: a new turn means that it was idle in between."""
    if before.turn_id is not None and after.turn_id is not None and before.turn_id != after.turn_id:
        yield before.status, "idle"
        yield "idle", after.status
    else:
        yield before.status, after.status
