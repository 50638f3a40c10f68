"""Recordings of sessions by earlier versions, which read a conversation in pages of 20 turns, are replayed by one that reads more at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from heliograph.execution.hydrate import _earlier_turns
from heliograph.recording.compared_values import as_sent_now
from heliograph.recording.replay_world import ReplayedLedger
from heliograph.recording.script import Script
from heliograph.records import Cause, EarlierTurn
from heliograph.turn.earlier_turns import MESSAGE


class _Judge:
    """Notes what the replay would name as a divergence."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def compare_call(self, entry: Sequence[Any], item: Any) -> bool:
        if as_sent_now(entry[2], entry[3]) != item:
            self.found.append((entry[3], item))
        return not self.found

    def missing(self, *what: Any) -> None:
        self.found.append(what)


def turn(seq: int) -> EarlierTurn:
    return EarlierTurn(
        f"turn_{seq}", seq, Cause(f"sig_anna_{seq}", MESSAGE, {"text": "Hi"}), "success", {"text": "yes"}
    )


def recorded(turns: Sequence[EarlierTurn], pages: int) -> list[Any]:
    """The entries of an earlier version, which read the last page for nothing if the conversation ended with one of 20."""
    entries, before = list[Any](), 1000
    for number in range(1, pages + 1):
        page = [each for each in turns if each.seq < before][:20]
        item = {"agent": "front", "before": before, "limit": 20}
        entries += [["call", number, "read_conversation", item, {}], ["answer", number, msgspec.to_builtins(page)]]
        before = page[-1].seq if page else before
    return entries


@pytest.mark.parametrize(
    ("count", "pages", "tokens", "read"),
    [(0, 1, 16000, 0), (1, 2, 16000, 1), (7, 1, 16000, 7), (20, 2, 16000, 20), (45, 3, 16000, 45), (40, 3, 16000, 40), (90, 3, 444, 55)],
)  # fmt: skip
def test_conversation_in_pages_of_20_turns_is_read_as_it_was(count: int, pages: int, tokens: int, read: int) -> None:
    turns = [turn(seq) for seq in range(count, 0, -1)]
    judge, script = _Judge(), Script(recorded(turns, pages))
    ledger = ReplayedLedger(cast(Any, None), "p", script, cast(Any, judge))
    claimed = SimpleNamespace(
        cause=turn(1).cause, run=SimpleNamespace(memory={"session": "open"}), activation_id="sig_anna_1000", run_id="anna", agent="front"
    )  # fmt: skip
    spec = SimpleNamespace(prompt="Answer", history_tokens=tokens)

    async def hydrated() -> Any:
        async with asyncio.timeout(2):
            return await _earlier_turns(cast(Any, SimpleNamespace(claimed=claimed, spec=spec, ledger=ledger)))

    found, _ = asyncio.run(hydrated())
    assert (judge.found, [each.seq for each in found]) == ([], [each.seq for each in turns[:read]])
    assert script.is_over
