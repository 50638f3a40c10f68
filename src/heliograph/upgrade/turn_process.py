"""The process in which turns are checked: it reads a turn per line, and writes an answer per line.

The code of an application may hang, end its process, or try to reach the outside. So it runs in a process that may be killed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import IO, Any

import msgspec

from heliograph.error_text import format_exception
from heliograph.errors import HeliographError
from heliograph.ledger.rows import OpenTurnRow
from heliograph.records import Card
from heliograph.upgrade.check_turn import CheckedApplication, check_turn
from heliograph.upgrade.divergence import TurnDivergence, bounded
from heliograph.upgrade.effect_guard import EffectGuard, cut_connections

_SPARE_SECONDS = 5.0


class CheckRequest(msgspec.Struct, frozen=True):
    """A turn to check. boxes: the cards that it may read, by the ids of their boxes."""

    turn: OpenTurnRow
    boxes: dict[str, list[Card]]
    now: datetime


class Answer(msgspec.Struct, frozen=True):
    """The answer to the first line, and to each turn. problem: why the process cannot check turns."""

    divergence: TurnDivergence | None = None
    problem: str | None = None


def serve(load: Callable[[Any], CheckedApplication], requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until their end. load: makes the application from the first request, which has the `timeout_seconds` of a turn."""

    def answer(value: Answer) -> None:
        answers.write(msgspec.json.encode(value) + b"\n")
        answers.flush()

    try:
        first = msgspec.json.decode(requests.readline())
        app = load(first)
    except Exception as error:
        answer(Answer(problem=error.message if isinstance(error, HeliographError) else format_exception(error)))
        return
    cut_connections({requests.fileno(), answers.fileno()})
    guard = EffectGuard()
    answer(Answer())
    decoder = msgspec.json.Decoder(CheckRequest)
    for line in requests:
        request = decoder.decode(line)
        guard.begin()
        with _ends_after(first["timeout_seconds"] + _SPARE_SECONDS):
            found = check_turn(app, request.turn, request.boxes, request.now)
        if guard.attempt is not None:
            found = _outside(request.turn, guard.attempt, found)
        if found is not None:
            found = replace(found, recorded=bounded(found.recorded), now=bounded(found.now))
        answer(Answer(found))


def _outside(turn: OpenTurnRow, attempt: str, found: TurnDivergence | None) -> TurnDivergence:
    """The divergence of a turn whose code has attempted an effect, also where it caught the exception and continues."""
    claimed = turn.claimed
    message = f"the code attempts {attempt} outside of a step"
    if found is None:
        return TurnDivergence("outside", claimed.run_id, claimed.turn_id, claimed.agent,
                              f"{message}, and continues after the error; with an effect it may continue otherwise")  # fmt: skip
    return replace(found, kind="outside", message=f"{message}; then: {found.kind}: {found.message}")


@contextmanager
def _ends_after(seconds: float) -> Iterator[None]:
    """End this process if the code takes longer: the process that would end it may be gone."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
