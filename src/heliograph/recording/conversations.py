"""The conversations of a run that nobody recorded: the earlier turns of each of its agents, from the parts of the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from heliograph.ids import split_signal_id
from heliograph.recording.ledger_parts import EARLIER, LEDGER
from heliograph.recording.recording import Part, Recording
from heliograph.records import Claimed, EarlierTurn, StreamedSignal
from heliograph.signals.model import Signal
from heliograph.turn.earlier_turns import MESSAGE


def conversations_of(recording: Recording) -> Mapping[str, Sequence[EarlierTurn]]:
    """The turns of each agent that answered messages, the newest first; in a fork, also those that it shares."""
    found = defaultdict[str, list[EarlierTurn]](list)
    of_turn = defaultdict[str, list[Signal]](list)
    for signal in recording.signals:
        if signal.name in ("harness:start", "text:delta") and signal.turn_id is not None:
            of_turn[signal.turn_id].append(signal)
    for part in recording.parts:
        with suppress(
            msgspec.ValidationError, KeyError
        ):  # a part of a file that was edited is named when it is replayed
            _add(found, part, of_turn)
    return {agent: sorted(turns, key=lambda turn: -turn.seq) for agent, turns in found.items()}


def _add(found: dict[str, list[EarlierTurn]], part: Part, signals: Mapping[str, Sequence[Signal]]) -> None:
    if "claimed" not in part.data:
        return
    claimed = msgspec.convert(part.data["claimed"], Claimed)
    ledger: Any = part.data[LEDGER]
    found[claimed.agent] += msgspec.convert(ledger.get(EARLIER, []), list[EarlierTurn])
    if claimed.cause.name == MESSAGE:
        found[claimed.agent].append(
            _turn(claimed, ledger["outcome"], ledger["content"], signals.get(claimed.turn_id, ()))
        )


def _turn(claimed: Claimed, outcome: Any, content: Any, signals: Sequence[Signal]) -> EarlierTurn:
    place = split_signal_id(claimed.activation_id)
    streamed = None if outcome in ("success", "partial") else [StreamedSignal(s.name, s.payload) for s in signals]
    return EarlierTurn(
        claimed.turn_id, 0 if place is None else place[1], claimed.cause, outcome, content, claimed.waits, streamed
    )
