"""Durable subscriptions of one project, as the kernel has them (88_subscriptions.sql)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

import msgspec

from heliograph.error_text import safe_repr
from heliograph.errors import Conflict, NotFound, Rejected
from heliograph.policy.retry import RetryPolicy
from heliograph.signals.model import Signal, Source
from heliograph.world.seam import World

# between two looks whether a new subscription is open
_OPENING = RetryPolicy(initial_delay_seconds=0.005, max_delay_seconds=0.5, jitter=False)

_PAGE = 100  # subscriptions of one call


class TakenRun(msgspec.Struct, frozen=True):
    """Signals of one run for one subscriber. upto: the position after them. pruned: how many were deleted before."""

    run_id: str
    after: int
    upto: int
    pruned: int
    signals: list[Signal]


class Recorded(msgspec.Struct, frozen=True):
    """The result of recording a position: `ok`; `stale`, if the subscriber no longer has the run; `rejected`, with a message."""

    outcome: str
    message: str = ""


class Taken(NamedTuple):
    """The answer of a search. more: search again at once. due_seconds: after this time a leased run may be free."""

    runs: list[TakenRun]
    more: bool
    due_seconds: float | None


class SubscriptionRow(msgspec.Struct, frozen=True):
    """One subscription. runs: that it still reads. behind: their signals after its positions. taken: runs that a subscriber has now.

    is_partial: it has more than 1,000 runs, and these numbers count a part of them.
    """

    name: str
    patterns: list[str]
    created_by: str
    created_at: datetime
    runs: int
    behind: int
    taken: int
    is_partial: bool


class SignalFeed:
    """Subscribes to signals of one project, and takes them. Raises StoreUnavailable, and KernelRejected for invalid arguments."""

    def __init__(self, world: World, project: str):
        self._world = world
        self.project = project

    async def subscribe(self, name: str, patterns: Sequence[str], since: str, positions: Mapping[str, int]) -> bool:
        """Create a subscription; return whether it is new.

        Raises Conflict (`id_conflict`), Rejected (`pattern_not_granted`, `unknown_position`, `pruned_position`), NotFound (`unknown_run`).
        """
        arguments = self.project, name, list(patterns), since, dict(positions)
        answer, looks = await self._world.call("subscribe", *arguments), 1
        while answer["outcome"] == "opening":
            # its name has to be committed before the kernel looks for transactions that do not see it
            await self._world.sleep(_OPENING.delay_seconds(looks, name))
            answer, looks = await self._world.call("subscribe", *arguments), looks + 1
        if answer["outcome"] == "conflict":
            raise Conflict(f"subscription {name} exists with other patterns or of another login; choose another name, or delete it: "
                           f"helio signal unsubscribe {name}", code="id_conflict")  # fmt: skip
        if answer["outcome"] == "rejected":
            _raise_rejected(answer)
        return bool(answer["outcome"] == "subscribed")

    async def unsubscribe(self, name: str) -> None:
        """Delete a subscription. Raises NotFound (`unknown_subscription`), Rejected (`pattern_not_granted`)."""
        answer = await self._world.call("unsubscribe", self.project, name)
        if answer["outcome"] == "unknown":
            raise self._unknown(name)
        if answer["outcome"] == "rejected":
            _raise_rejected(answer)

    async def take(self, name: str, subscriber: str, limit: int, lease_seconds: float) -> Taken:
        """Take signals of at most `limit` runs.

        Raises NotFound (`unknown_subscription`), Rejected (`pattern_not_granted`).
        """
        answer = await self._world.call("take_signals", self.project, name, subscriber, limit, lease_seconds)
        if answer["outcome"] == "unknown":
            raise self._unknown(name)
        if answer["outcome"] == "rejected":
            _raise_rejected(answer)
        return Taken([_taken(row) for row in answer["runs"]], answer["more"], answer["due_seconds"])

    async def record(self, items: Sequence[dict[str, Any]]) -> list[Recorded]:
        """Record positions (89_take_signals.sql); return the results in the order of `items`."""
        return msgspec.convert(await self._world.call("record_positions", self.project, list(items)), list[Recorded])

    async def subscriptions(self) -> list[SubscriptionRow]:
        """List the subscriptions of the project, by name."""
        found: list[SubscriptionRow] = []
        while True:
            after = found[-1].name if found else None
            page = await self._world.call("list_subscriptions", self.project, after, _PAGE)
            found += msgspec.convert(page, list[SubscriptionRow])
            if len(page) < _PAGE:
                return found

    def _unknown(self, name: str) -> NotFound:
        return NotFound(f"no subscription {safe_repr(name)} in project {self.project}; helio signal subscriptions lists them",
                        code="unknown_subscription")  # fmt: skip


def _raise_rejected(answer: Mapping[str, Any]) -> NoReturn:
    error = NotFound if answer["code"] == "unknown_run" else Rejected
    raise error(answer["message"], code=answer["code"])


def _taken(row: Mapping[str, Any]) -> TakenRun:
    signals = [
        Signal(id=each["id"], name=each["name"], payload=each["payload"], timestamp=datetime.fromisoformat(each["timestamp"]),
               source=Source(each["agent"], each["parent"]) if each["agent"] or each["parent"] else None,
               run_id=each["run_id"], seq=each["seq"], turn_id=each["turn_id"])
        for each in row["signals"]
    ]  # fmt: skip
    return TakenRun(row["run_id"], row["after"], row["upto"], row["pruned"], signals)
