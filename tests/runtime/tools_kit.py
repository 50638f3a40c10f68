"""Helpers of the tests of tools: calls with their own ids, and a payment whose worker is killed."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from heliograph import Tool, tool
from heliograph.models import ToolCall

_ids = itertools.count(1)


def called(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"id-{next(_ids)}", name, arguments)


class Pay:
    """A payment tool whose worker is killed during the first execution."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.made = 0

    def tool(self, **options: Any) -> Tool:
        async def pay(amount: int) -> str:
            self.made += 1
            self.begun.set()
            if self.made == 1:
                await asyncio.Event().wait()
            return f"paid {amount}"

        return tool(**options)(pay)
