"""No network and no other process in a simulation: an attempt fails, and the message names the stub to write.

`ProcessLoop` rejects what async code attempts. Plain code opens sockets and programs without the loop.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from heliograph.definitions.tool import Tool
from heliograph.testing.simulation.callers import enter_tool, place_of
from heliograph.testing.simulation.process_loop import ProcessLoop
from heliograph.testing.stub_server import NotStubbed
from heliograph.tools.bound_tool import BoundTool
from heliograph.tools.context import ToolContext
from heliograph.tools.toolbox import Toolbox


class SimulatedToolbox(Toolbox):
    """The tools of a simulated worker. While a call runs, messages can name its tool."""

    def bound(self, tool: Tool) -> BoundTool:
        if id(tool) not in self._bound:
            self._bound[id(tool)] = _SimulatedTool(tool)
        return super().bound(tool)


class _SimulatedTool(BoundTool):
    async def call(self, context: ToolContext, arguments: Mapping[str, Any], run_sync: Callable[..., Any]) -> Any:
        enter_tool(self.tool.name)  # each call has a task of its own
        try:
            return await super().call(context, arguments, run_sync)
        except NotStubbed as problem:
            loop = asyncio.get_running_loop()
            if isinstance(loop, ProcessLoop) and problem not in loop.rejected:
                loop.rejected.append(problem)
            raise


@contextmanager
def without_network() -> Iterator[None]:
    """Reject connections and programs of plain code that runs in a simulation. Other threads are left alone."""
    guards: list[tuple[Any, str, Callable[..., str], str]] = [
        (socket.socket, "connect", lambda _socket, address: f"connects to {place_of(address)}", "network"),
        (socket.socket, "connect_ex", lambda _socket, address: f"connects to {place_of(address)}", "network"),
        (socket, "getaddrinfo", lambda host, *_, **__: f"looks up {host}", "network"),
        (socket, "gethostbyname", lambda host: f"looks up {host}", "network"),
        (socket, "gethostbyname_ex", lambda host: f"looks up {host}", "network"),
        (socket.socket, "sendto", lambda _socket, _data, *rest: f"sends to {place_of(rest[-1])}", "network"),
        (os, "system", lambda command: f"starts the program {command}", "subprocesses"),
        (os, "posix_spawn", lambda path, *_, **__: f"starts the program {path}", "subprocesses"),
        (subprocess.Popen, "__init__", lambda _popen, args=(), *_, **__: f"starts the program {_program(args)}", "subprocesses"),
    ]  # fmt: skip
    originals = [(owner, name, vars(owner).get(name)) for owner, name, _, _ in guards]
    for owner, name, describe, lacking in guards:
        setattr(owner, name, _guarded(getattr(owner, name), describe, lacking))
    try:
        yield
    finally:
        for owner, name, original in originals:
            if original is None:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _guarded(original: Callable[..., Any], describe: Callable[..., str], lacking: str) -> Callable[..., Any]:
    def guarded(*args: Any, **options: Any) -> Any:
        loop = asyncio._get_running_loop()
        if isinstance(loop, ProcessLoop):
            loop.reject(describe(*args, **options), lacking)
        return original(*args, **options)

    return guarded


def _program(args: Any) -> str:
    return str(args[0] if isinstance(args, list | tuple) and args else args)
