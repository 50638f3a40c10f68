"""Keep the handlers and levels of loggers that a test changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_logging(*names: str) -> Iterator[None]:
    """Restore these loggers at the end of the block, and those that every command of `helio` changes."""
    loggers = [logging.getLogger(name) for name in ("heliograph", "asyncpg", *names)]
    before = [(each.handlers, each.propagate, each.level) for each in loggers]
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
