"""The ledger of a recorded turn: each commit of signals has what the turn has read since the one before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from heliograph.execution.ownership import OwnedLedger
from heliograph.execution.tape import Tape, without_targets
from heliograph.ledger.client import Ledger
from heliograph.records import BeginResult, Card, Claimed, EarlierTurn, WriteResult
from heliograph.world.seam import Transaction

R = TypeVar("R", BeginResult, WriteResult)

_COMMITTED = frozenset(("ok", "suspended", "resolved"))  # the outcomes of calls whose signals are in the log


class RecordedLedger(OwnedLedger):
    """The kernel calls of one owned turn, recorded on its tape."""

    def __init__(self, ledger: Ledger, claimed: Claimed, tape: Tape):
        super().__init__(ledger, claimed)
        self._tape = tape

    def append(self, item: Mapping[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        return self._recorded("append", item, self._ledger.append)

    def begin_call(self, item: Mapping[str, Any]) -> Coroutine[Any, Any, BeginResult]:
        return self._recorded("begin_call", item, self._ledger.begin_call)

    async def begun(self, item: Mapping[str, Any], answer: BeginResult) -> BeginResult:
        """Record the call of begin_call that the intent has replaced."""
        self._tape.answer(self._tape.called("begin_call", item), answer)
        return answer

    def record_call(self, item: Mapping[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        return self._recorded("record_call", item, self._ledger.record_call)

    def record_call_in(self, transaction: Transaction, item: Mapping[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        write = partial(self._ledger.record_call_in, transaction)
        return self._recorded("record_call", item, write, is_certain=False)

    def suspend(self, item: Mapping[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        return self._recorded("suspend", item, self._ledger.suspend)

    def defer(self, item: Mapping[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        return self._recorded("defer", item, self._ledger.defer)

    def finish(self, item: Mapping[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        return self._recorded("finish", item, self._ledger.finish)

    async def pages_of_box(self, box_id: str) -> AsyncIterator[list[Card]]:
        number = self._tape.begin("call", "read_box", {"box_id": box_id}, {})
        try:
            pages = [page async for page in self._ledger.pages_of_box(box_id)]
        except Exception as error:
            self._tape.raised(number, error)
            raise
        self._tape.answer(number, pages)
        for page in pages:
            yield page

    async def earlier_turns(self, run_id: str, agent: str, before: int, limit: int) -> list[EarlierTurn]:
        item = {"agent": agent, "before": before}  # how many it reads at once changes nothing
        number = self._tape.begin("call", "read_conversation", item, {})
        try:
            turns = await self._ledger.earlier_turns(run_id, agent, before, limit)
        except Exception as error:
            self._tape.raised(number, error)
            raise
        self._tape.answer(number, turns)
        return turns

    async def _recorded(
        self, function: str, item: Mapping[str, Any], write: Callable[[dict[str, Any]], Awaitable[R]], *, is_certain: bool = True
    ) -> R:  # fmt: skip
        """Make a kernel call; one with signals keeps what was read before it. is_certain: an answer proves its commit."""
        tape, has_signals = self._tape, bool(item.get("signals"))
        if has_signals:
            number, body = tape.commit(function, item)
            given = {**self._owner, **item, "recording": body if function == "finish" else {"body": body}}
        else:
            number, given = tape.called(function, item), {**self._owner, **item}
        try:
            result = await write(given)
        except BaseException as error:
            if isinstance(error, Exception):
                tape.raised(number, error)
            if has_signals:  # also of a call that was cancelled nobody knows whether it was committed
                tape.lost(item.get("signals_emitted"))
            raise
        if has_signals and is_certain and result.outcome in _COMMITTED:
            if function == "finish":  # no later commit of this part has its answer
                return result
            tape.kept(number, item.get("signals_emitted"))
        tape.read(("answer", number, without_targets(result)))
        return self._checked(result)
