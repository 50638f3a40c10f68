"""The logger of one turn: its records name the turn, and appear once however often the turn runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from heliograph.redaction import guarded_logger


class TurnLogger(logging.LoggerAdapter[logging.Logger]):
    """A standard logger, `heliograph.agents.<agent>`, whose records have the attributes run_id, turn_id, agent_id, agent, phase and attempt.

    It drops the records of a part that the turn repeats because it waited or lost its worker.
    """

    def __init__(self, agent: str, fields: Mapping[str, object], is_replaying: Callable[[], bool]):
        super().__init__(guarded_logger(f"heliograph.agents.{agent}"), fields)
        self._fields = fields
        self._is_replaying = is_replaying

    def isEnabledFor(self, level: int) -> bool:
        return not self._is_replaying() and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **self._fields}}
