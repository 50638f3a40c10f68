"""Checks during the chaos: the limit of running turns and, for mutants, whether a violation is visible already."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from tests.journeys.chaos.away import AWAY
from tests.journeys.chaos.checks import TURN_CHECKS
from tests.journeys.chaos.checks_trials import AT_ANY_TIME, violations
from tests.journeys.chaos.site import Site
from tests.journeys.chaos.verdict import Verdict

THOROUGH_SECONDS = 1.5
AT_WORK = "select count(*) from heliograph.agent_state_head where status = 'running' and project_id = 'default'"

T = TypeVar("T")


class Watch:
    """Collect violations during the chaos; a thorough look runs every check that must hold at any time."""

    def __init__(self, site: Site):
        self._site = site
        self._limit = site.options.running_max
        self._most = 0
        self._next = 0.0
        self._problems: list[str] = []

    async def look(self, *, is_thorough: bool) -> None:
        self._most = max(self._most, await read_number(self._site, AT_WORK, 0))
        if is_thorough and time.monotonic() >= self._next:
            self._problems = await _past_proxy(self._site, lambda c: violations(c, {**TURN_CHECKS, **AT_ANY_TIME}), [])
            self._next = time.monotonic() + THOROUGH_SECONDS

    @property
    def has_seen(self) -> bool:
        """Whether a check has failed already."""
        return self._most > self._limit or bool(self._problems)

    def verdicts(self) -> list[Verdict]:
        crowded = [f"too many turns ran: {self._most} at a time"] if self._most > self._limit else []
        return [
            Verdict(f"at most {self._limit} turns ran at a time", crowded, f"{self._most} seen"),
            *([Verdict("every check that must hold at any time held", self._problems)] if self._problems else []),
        ]


async def read_number(site: Site, query: str, default: int) -> int:
    """Read one number past the proxy; return `default` while the server is away."""
    return await _past_proxy(site, lambda connection: connection.fetchval(query, timeout=5), default)


async def _past_proxy(site: Site, read: Callable[[Any], Awaitable[T]], default: T) -> T:
    try:
        connection: Any = await asyncpg.connect(site.server.url, timeout=2)
        try:
            return await read(connection)
        finally:
            connection.terminate()
    except AWAY:
        return default
