"""A replay has no network and starts no programs: what code attempts outside of its steps raises an error, and the replay names it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio import base_events
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NoReturn

_ACTION_MAX = 200


def place_of(address: Any) -> str:
    """The address of a socket as people write it."""
    return ":".join(map(str, address[:2])) if isinstance(address, tuple) else str(address)


def _program(args: Any) -> str:
    return str(args[0] if isinstance(args, list | tuple) and args else args)


# By the name of an audit event of Python: the action, from the arguments of the event.
_ACTIONS: Mapping[str, Callable[[tuple[Any, ...]], str]] = {
    "socket.connect": lambda args: f"connects to {place_of(args[1])}",
    "socket.bind": lambda args: f"listens at {place_of(args[1])}",
    "socket.sendto": lambda args: f"sends to {place_of(args[1])}",
    "socket.sendmsg": lambda args: f"sends to {place_of(args[1])}",
    "socket.getaddrinfo": lambda args: f"looks up {args[0]}",
    "socket.gethostbyname": lambda args: f"looks up {args[0]}",
    "socket.gethostbyaddr": lambda args: f"looks up {args[0]}",
    "subprocess.Popen": lambda args: f"starts the program {_program(args[1])}",
    "os.system": lambda args: f"starts the program {os.fsdecode(args[0])}",
    "os.posix_spawn": lambda args: f"starts the program {os.fsdecode(args[0])}",
    "os.spawn": lambda args: f"starts the program {args[1]}",
    "os.exec": lambda args: f"becomes the program {args[0]}",
    "os.fork": lambda args: "forks its process",
    "os.forkpty": lambda args: "forks its process",
}  # fmt: skip


class OutsideForbidden(PermissionError):
    """The code of a replayed turn attempted to reach another program."""


class DetachedLoop(base_events.BaseEventLoop):
    """An event loop without IO. attempt: the first action that the code attempted in it.

    Methods that would reach the outside cause the audit event of the blocking function, which forbids it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.attempt: str | None = None
        _forbid_outside()

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        self._forbidden("socket.connect", None, (host, port))

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **options: Any) -> Any:
        self._forbidden("socket.connect", None, path)

    async def create_datagram_endpoint(self, *args: Any, remote_addr: Any = None, **options: Any) -> Any:
        self._forbidden("socket.connect", None, remote_addr)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        self._forbidden("socket.bind", None, (host, port))

    async def sock_connect(self, sock: Any, address: Any) -> Any:
        self._forbidden("socket.connect", sock, address)

    async def subprocess_exec(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        self._forbidden("subprocess.Popen", None, args, None, None)

    async def subprocess_shell(self, protocol_factory: Any, cmd: Any, **options: Any) -> Any:
        self._forbidden("subprocess.Popen", None, cmd, None, None)

    def _forbidden(self, event: str, *args: Any) -> NoReturn:
        sys.audit(event, *args)
        raise AssertionError("the hook has forbidden it")


@cache
def _forbid_outside() -> None:
    """Install the hook, once for this process: Python removes none. It concerns the threads that run a replay."""
    sys.addaudithook(_on_event)


def _on_event(event: str, args: tuple[Any, ...]) -> None:
    if (describe := _ACTIONS.get(event)) is None or not isinstance(loop := asyncio._get_running_loop(), DetachedLoop):
        return
    action = describe(args)[:_ACTION_MAX]
    loop.attempt = loop.attempt or action
    raise OutsideForbidden(f"a replay has no network and starts no programs, and the code {action}; put it into a step")
