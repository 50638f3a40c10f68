"""What a running turn says: kept until the next commit, or sent ahead when somebody may be watching.

A draft rides in the commit that ends the turn, at no cost. Deltas and progress
do not wait for that: they are sent in batches, a few tens of milliseconds apart
(decision 14), each batch one gated append. Neighbouring deltas of one stream
become one signal that carries its offset.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from heliograph.errors import StoreUnavailable
from heliograph.ids import signal_id
from heliograph.reactive.workflow import Workflow
from heliograph.records import Claimed
from heliograph.signals.model import Draft
from heliograph.worker.kit import Kit, TurnLost, owned

log = logging.getLogger("heliograph.worker")

BATCH_SECONDS = 0.04
_DELTAS = ("text:delta", "thinking:delta")


class Voice:
    """The voice of one owned turn. Indexes count the turn's drafts from 0, sent or not."""

    def __init__(self, claimed: Claimed, workflow: Workflow, kit: Kit):
        self._claimed = claimed
        self._wakes = workflow.wakes
        self._kit = kit
        self._pending: list[Draft] = []
        self._sent = 0
        self._batches: list[tuple[int, int]] = []  # (index of its first draft, log position of that draft)
        self._sending = asyncio.Lock()
        self._in_flight = 0  # drafts at the head of _pending that a send has taken; they change no more
        self._is_due = False
        self._is_closed = False
        self._lost: TurnLost | None = None
        self.phase = "init"

    def say(self, draft: Draft) -> int:
        """Keep a draft for the next commit; answers its index. An integer parent is an index given before."""
        self._pending.append(draft)
        return self._sent + len(self._pending) - 1

    def say_now(self, draft: Draft) -> None:
        """Keep a draft and send it soon, with whatever else is pending."""
        last = self._pending[-1] if len(self._pending) > self._in_flight else None
        if draft.name in _DELTAS and last is not None and last.name == draft.name and last.parent == draft.parent:
            self._pending[-1] = replace_content(last, draft)
        else:
            self.say(draft)
        if not self._is_due:
            self._is_due = True
            self._kit.world.spawn(f"voice {self._claimed.turn_id}", self._send_soon())

    def mark(self) -> int:
        return self._sent + len(self._pending)

    def rewind(self, mark: int) -> None:
        """Forget what was said after `mark` and is not sent yet."""
        del self._pending[max(0, mark - self._sent) :]

    async def take(self) -> tuple[Draft, ...]:
        """Everything not yet sent, for the commit that ends the turn; nothing is sent ahead after this.

        Raises TurnLost if a batch was refused.
        """
        self._is_closed = True  # before waiting: a send that waits for the lock, too, must not take the ending's drafts
        async with self._sending:
            if self._in_flight:  # a batch whose reply was lost: sent again as it was, or its signals would repeat
                await self._send()
            if self._lost is not None:
                raise self._lost
            return tuple(self._placed(self._pending))

    async def _send_soon(self) -> None:
        await self._kit.world.sleep(BATCH_SECONDS)
        self._is_due = False
        try:
            async with self._sending:
                if not self._is_closed:
                    await self._send()
        except StoreUnavailable as error:
            log.info("signals of %s wait: %s", self._claimed.turn_id, error.message)
        except TurnLost as lost:
            self._lost = lost  # the drive meets it at its next commit, or by its heartbeat

    async def _send(self) -> None:
        batch, world = self._pending[: self._in_flight or None], self._kit.world
        if not batch or self._lost is not None:
            return
        drafts = [self._item(d) for d in self._placed(batch)]
        self._in_flight = len(batch)
        await world.point("before_append")
        written = owned(await self._kit.ledger.append({
            "agent_id": self._claimed.agent_id, "turn_id": self._claimed.turn_id, "epoch": self._claimed.epoch,
            "phase": self.phase, "said": self._sent, "signals": drafts,
        }))  # fmt: skip
        assert written.first_seq is not None
        self._batches.append((self._sent, written.first_seq))
        self._sent += len(batch)
        self._in_flight = 0
        del self._pending[: len(batch)]
        world.ring([f"log:{self._claimed.run_id}"])
        if any(d["owed"] for d in drafts):
            world.ring([f"owed:{self._claimed.target}"])

    def _placed(self, drafts: list[Draft]) -> list[Draft]:
        """Parents as the kernel takes them: ids of what is logged, else indexes within this batch."""
        return [msgspec.structs.replace(d, parent=self._parent(d.parent)) for d in drafts]

    def _parent(self, parent: str | int | None) -> str | int | None:
        if not isinstance(parent, int):
            return parent
        for first, seq in reversed(self._batches):
            if first <= parent < self._sent:
                return signal_id(self._claimed.run_id, seq + parent - first)
        return parent - self._sent

    def _item(self, draft: Draft) -> dict[str, object]:
        return {**draft_item(draft), "owed": bool(self._wakes.match(draft.name))}


def draft_item(draft: Draft) -> dict[str, object]:
    """A draft as the kernel's functions take it."""
    return {
        "name": draft.name, "payload": draft.payload, "agent": draft.agent, "parent": draft.parent,
        "at": draft.at.isoformat() if draft.at else None,
    }  # fmt: skip


def replace_content(last: Draft, draft: Draft) -> Draft:
    """Two neighbouring deltas as one; the first one's offset stays."""
    assert isinstance(last.payload, dict) and isinstance(draft.payload, dict)
    content = f"{last.payload['content']}{draft.payload['content']}"
    return msgspec.structs.replace(last, payload={**last.payload, "content": content})
