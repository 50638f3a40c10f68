"""The tools of one process, shared by all its turns: each tool is bound once, and each toolset is opened once."""

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
    """Tools and toolsets by identity, so that all turns share a tool's concurrency limit and a toolset's connection.

    egress: the addresses that MCP servers may have; by default only those on the public internet.
    """

    def __init__(self, egress: EgressPolicy | None = None) -> None:
        self._egress = egress or server_policy()
        self._bound: dict[int, BoundTool] = {}
        self._open: dict[int, _OpenToolset] = {}

    def bound(self, tool: Tool) -> BoundTool:
        """Return the bound tool: the same object for every call with the same tool."""
        if id(tool) not in self._bound:
            self._bound[id(tool)] = BoundTool(tool)
        return self._bound[id(tool)]

    async def tools_of(self, toolset: Any) -> Sequence[Tool]:
        """Return the tools of a toolset, an object with a method `open_tools`. Raises the errors of `open_tools`.

        The first call opens the toolset. Later calls refresh the returned sequence if it has a method `refresh`.
        """
        is_new = id(toolset) not in self._open
        if is_new:
            opened = self._open[id(toolset)] = _OpenToolset(toolset)
            opened.task = asyncio.create_task(self._keep_open(opened), name="toolset")
        opened = self._open[id(toolset)]
        await opened.is_settled.wait()
        if opened.error is not None:
            raise opened.error
        if not is_new and hasattr(opened.tools, "refresh"):
            await opened.tools.refresh()
        return opened.tools

    async def close(self) -> None:
        """Close all toolsets, each in the task that opened it."""
        toolsets = list(self._open.values())
        for opened in toolsets:
            opened.closing.set()
        if tasks := [opened.task for opened in toolsets if opened.task is not None]:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)  # slower ones notice the end of this process

    async def _keep_open(self, opened: _OpenToolset) -> None:
        try:
            toolset = opened.toolset
            async with (
                toolset.open_tools(self._egress) if isinstance(toolset, MCPServer) else toolset.open_tools() as tools
            ):
                opened.tools = tools
                opened.is_settled.set()
                await opened.closing.wait()
        except Exception as error:
            opened.error = error
        finally:
            self._open.pop(id(opened.toolset), None)  # the next call opens it again
            opened.is_settled.set()


class _OpenToolset:
    """A toolset that is open or opening. Once settled, it has `tools` or an `error`."""

    def __init__(self, toolset: Any):
        self.toolset = toolset  # the reference keeps its id from being reused
        self.tools: Sequence[Tool] = ()
        self.error: Exception | None = None
        self.is_settled = asyncio.Event()
        self.closing = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
