"""A plugin of pytest: `-p tests.worker_loop` runs asynchronous tests on the event loop of `helio worker` instead of asyncio's own one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from heliograph.world.event_loop import new_event_loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"worker": new_event_loop}
