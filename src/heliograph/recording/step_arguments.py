"""Compare the arguments of a step with the hash that the log has of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from heliograph.json_differences import Difference
from heliograph.signals.model import Signal
from heliograph.turn.calls import CallRequest
from heliograph.turn.input_hash import INPUT_HASH, input_hash
from heliograph.turn.journal import call_label


@dataclass(frozen=True, slots=True)
class ChangedArguments:
    """A step that would receive other arguments. seq: of the signal of its call."""

    request: CallRequest
    seq: int
    difference: Difference

    @property
    def message(self) -> str:
        label = call_label(self.request.kind, self.request.tool)
        return f"{label} ({self.request.call_id}) would receive other arguments (the log has a hash of them)"


class StepArguments:
    """The hashes of the arguments of steps, from the log.

    A step without a hash in the log is not compared: it had no arguments, they had no canonical form, or an earlier version recorded it.
    """

    def __init__(self, signals: Iterable[Signal]):
        self._hashes: dict[str, tuple[int, str]] = {}
        for signal in signals:
            payload: Any = signal.payload
            if signal.name == "tool:call" and isinstance(payload, dict) and isinstance(payload.get(INPUT_HASH), str):
                self._hashes[str(payload.get("id"))] = signal.seq, payload[INPUT_HASH]

    def changed(self, request: CallRequest) -> ChangedArguments | None:
        """The difference of a step that runs now; None if there is none, or if its present arguments have no canonical form."""
        seq, recorded = self._hashes.get(request.call_id, (0, None))
        now = None if recorded is None else input_hash(request.arguments)
        if recorded is None or now is None or now == recorded:
            return None
        return ChangedArguments(request, seq, Difference(f"/payload/{INPUT_HASH}", recorded, now))
