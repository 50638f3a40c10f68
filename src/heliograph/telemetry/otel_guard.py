"""Guard the runtime from errors of telemetry: they cost a span, and no turn fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

log = logging.getLogger("heliograph.telemetry")

F = TypeVar("F", bound=Callable[..., Any])
_reported: set[str] = set()


def guarded(instead: Callable[[], Any]) -> Callable[[F], F]:
    """Make a method return `instead()` for an exception in it. The first exception of each method is logged."""

    def decorate(method: F) -> F:
        @wraps(method)
        def guarding(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                if method.__qualname__ not in _reported:
                    _reported.add(method.__qualname__)
                    log.warning(
                        "telemetry failed in %s, and its spans are missing", method.__qualname__, exc_info=error
                    )
                return instead()

        return cast("F", guarding)

    return decorate


def nothing() -> None:
    """Return None."""
