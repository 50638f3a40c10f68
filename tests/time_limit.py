"""A test may take three seconds, unless it is marked `more` or `long`: longer, and it is listed; twice as long, and it fails.

One pause of a shared machine is no failure, so the test fails only at the double. Fixtures that several tests share do
not count. The limit grows with the load average. Test processes of the run count from their start, because the average has them
only after a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import Any

import pytest

SECONDS = 3.0
FAILS_AT = 2.0  # times the limit
SLOW = "slower than the limit"
EXEMPT = ("more", "long")

_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_own_seconds = pytest.StashKey[float]()
_shared_seconds = pytest.StashKey[float]()


def limit_seconds(load: float, processes: int, cores: int) -> float:
    """How long a test may take at this load average, while `processes` processes run tests."""
    return SECONDS * max(1.0, load / cores, processes / cores)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Generator[None, Any, Any]:
    began = time.monotonic()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            stash = request._pyfuncitem.stash
            stash[_shared_seconds] = stash.get(_shared_seconds, 0.0) + time.monotonic() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, pytest.TestReport]:
    """Judge the test in the report on its last phase."""
    report: pytest.TestReport = yield
    seconds = item.stash[_own_seconds] = item.stash.get(_own_seconds, 0.0) + call.duration
    if call.when == "teardown":
        seconds -= item.stash.get(_shared_seconds, 0.0)
        limit = limit_seconds(os.getloadavg()[0], _PROCESSES, os.cpu_count() or 1)
        if report.passed and seconds > limit and not any(item.get_closest_marker(name) for name in EXEMPT):
            slow = (f"{item.nodeid} took {seconds:.1f} s, and may take {limit:.1f} s at this load: "
                    "make it quicker, or mark it `more`")  # fmt: skip
            report.user_properties.append((SLOW, slow))
            if seconds > FAILS_AT * limit:
                report.outcome = "failed"
                report.longrepr = slow
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the slow tests that passed."""
    for report in terminalreporter.stats.get("", []):
        for name, slow in report.user_properties:
            if name == SLOW:
                terminalreporter.write_line(f"SLOW {slow}", yellow=True)
