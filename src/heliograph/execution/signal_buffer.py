"""The signals of a running turn: buffered until the next commit of the turn, or sent earlier for observers.

Most signals are part of the commit that ends the turn, at no extra cost. Deltas and progress are urgent: they are sent in
batches, a few tens of milliseconds apart, and each batch is one `append`. Consecutive deltas of one stream are joined.

Every kernel call that logs signals of the turn goes through the buffer, one at a time. The kernel recognizes a repeated
call by `signals_emitted`: the number of signals that this owner had logged before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.execution.turn_ledger import TurnLedger
from heliograph.ids import signal_id
from heliograph.records import Claimed, WriteResult
from heliograph.signals.model import Draft
from heliograph.signals.pattern_table import PatternTable
from heliograph.turn.drafts import draft_items
from heliograph.turn.interruptions import TurnLost
from heliograph.turn.taint import Taint
from heliograph.types import JsonObject
from heliograph.world.seam import World, bell_keys

if TYPE_CHECKING:
    from heliograph.telemetry.metrics_signals import TurnMetrics

log = logging.getLogger("heliograph.execution")

BATCH_SECONDS = 0.04
_DELTAS = ("text:delta", "thinking:delta")
_DELTA_CHARACTERS_MAX = 16_000  # of joined deltas: well below the limit of a payload
_LOGGED = ("ok", "duplicate", "suspended", "resolved")

# Makes one kernel call that logs drafts. It receives the number of signals logged before, the drafts, and the index of the
# caller's own drafts among them.
Send = Callable[[int, list[dict[str, object]], int], Awaitable[WriteResult]]


class SignalBuffer:
    """The uncommitted signals of one owned turn. Indexes count all drafts of the turn from 0."""

    def __init__(
        self, claimed: Claimed, ledger: TurnLedger, world: World, project: str, wakes: PatternTable[tuple[str, int]], taint: Taint,
        metrics: TurnMetrics | None = None,
    ):  # fmt: skip
        """wakes: the subscriptions of the application. taint: of the current run of the agent; each run sets its own."""
        self.taint = taint
        self._metrics = metrics
        self._claimed = claimed
        self._ledger = ledger
        self._world = world
        self._project = project
        self._wakes = wakes
        self._pending: list[Draft] = []
        self._first = 0  # the index of the first draft in _pending
        self._signals_emitted = 0  # the drafts of this owner that the kernel has logged
        # (index of the first draft of a commit, how many, log position of the first)
        self._batches: list[tuple[int, int, int]] = []
        self._lock: asyncio.Lock | None = None  # of the first sender; most turns send all in their last commit
        self._in_flight = (
            0  # how many drafts at the head of _pending are part of an unanswered call; they no longer change
        )
        self._call: tuple[Send, int] | None = None  # that call, and the index of its own drafts; None: an append
        self._is_due = False
        self._urgent_end = 0  # the index after the last urgent draft
        self._is_closed = False
        self._lost: TurnLost | None = None
        self.phase = "init"

    def add(self, draft: Draft) -> int:
        """Buffer a draft for the next commit, and return its index. An integer parent is the index of an earlier draft."""
        self._pending.append(self._marked(draft))
        return self._first + len(self._pending) - 1

    def add_all(self, drafts: Sequence[Draft]) -> None:
        """Buffer drafts for the next commit."""
        self._pending += [self._marked(draft) for draft in drafts] if self.taint.is_tainted else drafts

    def add_urgent(self, draft: Draft) -> None:
        """Buffer a draft, and send it soon with all pending drafts."""
        last = self._pending[-1] if len(self._pending) > self._in_flight else None
        if last is not None and _can_join(last, self._marked(draft)):
            self._pending[-1] = _joined(last, draft)
        else:
            self.add(draft)
        self._urgent_end = self.mark()
        if not self._is_due:
            self._is_due = True
            self._world.spawn(f"signals {self._claimed.turn_id}", self._send_after_pause())

    def mark(self) -> int:
        """The position for a later `rewind`: the index of the next draft."""
        return self._first + len(self._pending)

    def rewind(self, mark: int) -> None:
        """Drop the unsent drafts after `mark`."""
        del self._pending[max(0, mark - self._first) :]
        self._urgent_end = min(self._urgent_end, mark)

    async def take(self) -> tuple[Draft, ...]:
        """Close the buffer, and return all unsent drafts for the commit that ends the turn. Raises TurnLost."""
        self._is_closed = True  # before waiting: another send that waits for the lock must not take these drafts
        if self._lock is not None:  # `locked` is false while a sender that waited is about to go on
            async with self._lock:
                if self._in_flight:  # the reply to a call was lost: repeat it, so that its signals are logged once
                    await self._send()
        if self._lost is not None:
            raise self._lost
        return tuple(self._with_parents(self._pending))

    @property
    def _sending(self) -> asyncio.Lock:
        """Held during a send."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def flush(self) -> None:
        """Send the pending drafts. Raises TurnLost."""
        async with self._sending:
            if self._in_flight:  # see take
                await self._send()
            if self._lost is not None:
                raise self._lost
            await self._send()

    async def commit(self, send: Send, own: Sequence[Draft] = ()) -> WriteResult:
        """Log all pending drafts, followed by the drafts `own`, in the kernel call that `send` makes. Raises TurnLost.

        A rejected call logs nothing: the pending drafts stay pending, and `own` is dropped.
        """
        async with self._sending:
            if self._in_flight:  # see take
                await self._send()
            if self._lost is not None:
                raise self._lost
            self._call = send, len(self._pending)
            self._pending += [self._marked(draft) for draft in own]
            self._in_flight = len(self._pending)
            return await self._call_kernel(*self._call)

    async def _call_kernel(self, send: Send, first: int) -> WriteResult:
        """Make the current call, for the first time or again with the same drafts."""
        batch = self._pending[: self._in_flight]
        try:
            result = await send(self._signals_emitted, self._items(batch), first)
        except KernelRejected:
            self._discard_own(first, len(batch))
            raise
        if result.outcome in _LOGGED:
            self._in_flight, self._call = 0, None
            self._logged(batch, result.first_seq)
        else:
            self._discard_own(first, len(batch))
        return result

    def _discard_own(self, first: int, end: int) -> None:
        """Drop the caller's own drafts of a rejected call; the others wait for the next call."""
        self._in_flight, self._call = 0, None
        del self._pending[first:end]

    async def _send_after_pause(self) -> None:
        await self._world.sleep(BATCH_SECONDS)
        self._is_due = False
        try:
            async with self._sending:
                # another commit may have logged the urgent drafts; the others wait for the next one, however the tasks ran meanwhile
                if not self._is_closed and (self._in_flight or self._urgent_end > self._first):
                    await self._send()
        except StoreUnavailable as error:
            log.info("signals of %s wait: %s", self._claimed.turn_id, error.message)
        except TurnLost as lost:
            self._lost = lost  # the next commit of the turn raises it

    async def _send(self) -> None:
        if self._call is not None:
            await self._call_kernel(*self._call)
            return
        batch = self._pending[: self._in_flight or None]
        if not batch or self._lost is not None:
            return
        drafts = self._items(batch)
        self._in_flight = len(batch)
        await self._world.failpoint("before_append")
        result = await self._ledger.append(
            {"phase": self.phase, "signals_emitted": self._signals_emitted, "signals": drafts}
        )
        self._in_flight = 0
        if result.outcome == "rejected":
            log.error("%s: its signals were rejected: %s", self._claimed.turn_id, result.message)
            self._drop(len(batch))
        else:
            self._logged(batch, result.first_seq)

    def _logged(self, batch: Sequence[Draft], first_seq: int | None) -> None:
        if not batch:
            return
        if first_seq is not None:
            self._batches.append((self._first, len(batch), first_seq))
        self._signals_emitted += len(batch)
        self.count(batch)
        self._drop(len(batch))
        self._ring(f"log:{self._claimed.run_id}")
        if any(self._wakes.match(draft.name) for draft in batch):
            self._ring(f"reaction:{self._claimed.target}")

    def count(self, drafts: Sequence[Draft]) -> None:
        """Count signals that a kernel call has logged, for the metrics of the worker."""
        if self._metrics is not None:
            self._metrics.logged(self._claimed.turn_id, drafts)

    def _ring(self, name: str) -> None:
        self._world.ring(bell_keys(self._project, [name]))

    def _drop(self, count: int) -> None:
        del self._pending[:count]
        self._first += count

    def _with_parents(self, drafts: list[Draft]) -> list[Draft]:
        """Replace parents by the ids of logged signals, or by indexes within this batch."""
        return [
            msgspec.structs.replace(d, parent=self._parent(d.parent)) if isinstance(d.parent, int) else d
            for d in drafts
        ]

    def _parent(self, parent: int) -> str | int:
        if parent >= self._first:
            return parent - self._first
        for first, count, seq in reversed(self._batches):
            if first <= parent < first + count:
                return signal_id(self._claimed.run_id, seq + parent - first)
        return self._claimed.activation_id  # the parent was rejected

    def _marked(self, draft: Draft) -> Draft:
        return msgspec.structs.replace(draft, is_untrusted=True) if self.taint.is_tainted else draft

    def _items(self, drafts: list[Draft]) -> list[dict[str, object]]:
        items = draft_items(self._with_parents(drafts), self._claimed.run_id)
        for draft, item in zip(drafts, items, strict=True):
            if self._wakes.match(draft.name):
                item["is_pending"] = True
        return items


def _can_join(last: Draft, draft: Draft) -> bool:
    """Whether `draft` continues the stream of `last`, and both together are short enough."""
    if draft.name not in _DELTAS or last.name != draft.name or last.parent != draft.parent:
        return False
    if last.is_untrusted != draft.is_untrusted:
        return False
    return len(_content(last)) + len(_content(draft)) <= _DELTA_CHARACTERS_MAX


def _content(delta: Draft) -> str:
    assert isinstance(delta.payload, dict)
    return str(delta.payload["content"])


def _joined(last: Draft, draft: Draft) -> Draft:
    """Two consecutive deltas as one, with the offset of the first."""
    assert isinstance(last.payload, dict)
    payload: JsonObject = {**last.payload, "content": _content(last) + _content(draft)}
    return msgspec.structs.replace(last, payload=payload)
