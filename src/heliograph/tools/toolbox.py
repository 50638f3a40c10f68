"""The tools of one process: each described once, each server of tools opened once, shared by all turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from heliograph.definitions.tool import Tool
from heliograph.policy.egress import EgressPolicy, server_policy
from heliograph.tools.bound_tool import BoundTool
from heliograph.tools.mcp import MCPServer

_CLOSE_SECONDS = 15.0


class Toolbox:
    """Tools by the object that their author made, so that what limits them limits all who use it."""

    def __init__(self, egress: EgressPolicy | None = None) -> None:
        """egress: where servers may be reached; by default on the public internet alone."""
        self._egress = egress or server_policy()
        self._bound: dict[int, BoundTool] = {}
        self._open: dict[int, _Open] = {}

    def bound(self, tool: Tool) -> BoundTool:
        if id(tool) not in self._bound:
            self._bound[id(tool)] = BoundTool(tool)
        return self._bound[id(tool)]

    async def tools_of(self, given: Any) -> Sequence[Tool]:
        """The tools of a toolset (anything with `open_tools`), opened by whoever comes first. Raises what it raises.

        A list that knows how is made fresh (`refresh`) for those who come later.
        """
        is_new = id(given) not in self._open
        if is_new:
            opened = self._open[id(given)] = _Open(given)
            opened.task = asyncio.create_task(self._keep_open(opened), name="tools of a server")
        opened = self._open[id(given)]
        await opened.is_settled.wait()
        if opened.error is not None:
            raise opened.error
        if not is_new and hasattr(opened.tools, "refresh"):
            await opened.tools.refresh()
        return opened.tools

    async def close(self) -> None:
        """Close what is open; each toolset in the task that opened it."""
        held = list(self._open.values())
        for opened in held:
            opened.closing.set()
        if tasks := [opened.task for opened in held if opened.task is not None]:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)  # longer: the process ends, and its programs see that

    async def _keep_open(self, opened: _Open) -> None:
        try:
            given = opened.given
            async with given.open_tools(self._egress) if isinstance(given, MCPServer) else given.open_tools() as tools:
                opened.tools = tools
                opened.is_settled.set()
                await opened.closing.wait()
        except Exception as error:
            opened.error = error
        finally:
            self._open.pop(id(opened.given), None)  # whoever comes next tries again
            opened.is_settled.set()


class _Open:
    """One toolset: `tools` when it is settled, or the error of it."""

    def __init__(self, given: Any):
        self.given = given  # kept: its id is what it is known by
        self.tools: Sequence[Tool] = ()
        self.error: Exception | None = None
        self.is_settled = asyncio.Event()
        self.closing = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
