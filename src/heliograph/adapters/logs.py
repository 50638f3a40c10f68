"""Write signals to the log of the process, each with a level that its name decides."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from heliograph.adapters.base import PAGE, AdapterServices, Receive, TargetUnavailable
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.error_text import printable, repr_of, safe_repr
from heliograph.errors import InvalidInput, TurnTimedOut
from heliograph.key_patterns import json_without_secrets
from heliograph.redaction import guarded_logger
from heliograph.signals.model import Signal
from heliograph.signals.pattern_table import PatternTable
from heliograph.signals.signal_text import WHOLE, line_payload

LOGGER = "heliograph.signals"
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
# Of names for which the application gives no level; all others are info.
DEFAULT_LEVELS = {
    "agent:failed": "error", "error": "error", "harness:error": "error", "agent:skipped": "warning", "halt": "warning",
    "workflow:terminating": "warning", "text:delta": "debug", "thinking:delta": "debug", "agent:progress": "debug",
}  # fmt: skip
LOG_SECONDS = 30.0
PAYLOAD_BYTES_MAX = 8192  # of a structured record; a larger payload is replaced by its size
_NAME_LENGTH_MAX = 200


class Logs:
    """Writes each signal as a record of a logger of Python: name, agent and short payload, with secrets redacted.

    levels: debug, info, warning, error or critical, by patterns; the first pattern that matches counts. Then come DEFAULT_LEVELS: error for
        signals of failures, warning for skips and halts, debug for deltas and progress, info for all others.
    logger: its name. HELIOGRAPH_LOG sets the least level of `heliograph.signals`.
    A record has the attributes signal_id, signal_name, run_id, seq, turn_id, agent and payload; structured logs show them as fields.
    Raises InvalidInput (`invalid_log_level`, `wrong_type`, and the errors of patterns).
    """

    kind = "logs"
    page = PAGE

    def __init__(self, levels: Mapping[str, str] | None = None, *, logger: str = LOGGER):
        if levels is not None and not isinstance(levels, Mapping):
            raise InvalidInput(f"levels must be an object of patterns and levels, not {safe_repr(repr_of(levels))}", code="wrong_type",
                               path="/levels")  # fmt: skip
        if not isinstance(logger, str) or not 0 < len(logger) <= _NAME_LENGTH_MAX:
            raise InvalidInput(
                f"logger must be the name of a logger, not {safe_repr(repr_of(logger))}",
                code="wrong_type",
                path="/logger",
            )
        given = {**(levels or {})}
        for pattern, level in given.items():
            if not isinstance(pattern, str):
                raise InvalidInput(f"levels: {safe_repr(repr_of(pattern))} must be a pattern of names like 'order:*'", code="wrong_type",
                                   path="/levels")  # fmt: skip
            if not isinstance(level, str) or level not in LEVELS:
                raise InvalidInput(f"levels: the level of {safe_repr(pattern)} must be one of {', '.join(LEVELS)}, not {safe_repr(repr_of(level))}",
                                   code="invalid_log_level", path="/levels")  # fmt: skip
        self._levels = PatternTable((p, LEVELS[level]) for p, level in [*given.items(), *DEFAULT_LEVELS.items()])
        self._logger = guarded_logger(logger)
        self.target = f"logger {safe_repr(logger)}"

    def level_of(self, name: str) -> int:
        """The level of the signals with this name."""
        return next(iter(self._levels.match(name)), logging.INFO)

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: SignalSubscriber) -> AsyncIterator[Receive]:
        async def receive(signals: Sequence[Signal]) -> None:
            wanted = [signal for signal in signals if self._logger.isEnabledFor(self.level_of(signal.name))]
            if not wanted:
                return
            try:
                await services.world.within(LOG_SECONDS, services.run_sync(self._log, wanted))
            except TurnTimedOut:
                raise TargetUnavailable(f"{self.target} took no record within {LOG_SECONDS:g} s") from None

        yield receive

    def _log(self, signals: Sequence[Signal]) -> None:
        for signal in signals:
            text = printable(f"{signal.name}  {signal.agent or '-'}  {line_payload(signal, WHOLE)}".rstrip())
            self._logger.log(self.level_of(signal.name), "%s", text, extra=_fields(signal))


def _fields(signal: Signal) -> dict[str, Any]:
    payload = json_without_secrets(signal.payload)
    is_short = len(payload) <= PAYLOAD_BYTES_MAX
    return {
        "signal_id": signal.id, "signal_name": signal.name, "run_id": signal.run_id, "seq": signal.seq,
        "turn_id": signal.turn_id, "agent": signal.agent,
        "payload": msgspec.json.decode(payload) if is_short else f"({len(payload)} bytes)",
    }  # fmt: skip
