"""One event loop for all tests of a folder, so that connections outlive a test.

Each test still ends alone: tasks that it leaves behind are cancelled before the next test starts.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio

ROOT = Path(__file__).resolve().parent.parent


def share_loop(items: list[pytest.Item], folder: str) -> None:
    """Run the asynchronous tests of `folder` in the loop of the session. For a conftest's collection hook."""
    marker = pytest.mark.asyncio(loop_scope="session")
    for item in items:
        if item.path.is_relative_to(ROOT / folder) and pytest_asyncio.is_async_test(item):
            item.add_marker(marker, append=False)


async def cancel_tasks() -> None:
    """Cancel every task of this loop except the current one, and wait for their ends."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
