"""Processes of the command line that a test has started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.cli_support import Running


@pytest.fixture
def started() -> Iterator[list[Running]]:
    """Those put in here are killed after the test."""
    running: list[Running] = []
    yield running
    for each in running:
        each.process.kill()
        each.end()
