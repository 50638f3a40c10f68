"""A replay has no network and starts no programs: what code attempts outside of its steps raises an error, and the replay names it.

This holds in the thread of a replay and in the threads that its code starts.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import sys
import threading
from asyncio import base_events
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import thread as pool_threads
from contextlib import contextmanager
from functools import cache, partial, wraps
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
        self.replay = _present.replay or _Replay()
        self.replay.loop = self
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


class _Replay:
    """One replay. loop: that of its current part. is_over: None outside of `one_replay`, where each loop is a replay by itself."""

    loop: DetachedLoop
    is_over: bool | None = None

    @property
    def has_ended(self) -> bool:
        return self.loop.is_closed() if self.is_over is None else self.is_over


class _Present(threading.local):
    """The replay that has the loops which this thread creates."""

    replay: _Replay | None = None


class _Guarded(threading.local):
    """The replay whose code has started this thread. is_shared: the thread may have other work after the replay."""

    replay: _Replay | None = None
    is_shared = False


_present = _Present()
_guarded = _Guarded()


@contextmanager
def one_replay() -> Iterator[None]:
    """Count the loops that this thread creates as one replay: a part may be replayed again, with the threads that it has started before."""
    replay, before = _Replay(), _present.replay
    _present.replay, replay.is_over = replay, False
    try:
        yield
    finally:
        _present.replay, replay.is_over = before, True


@cache
def _forbid_outside() -> None:
    """Install the hook, once for this process: Python removes none. It concerns the threads of replays.

    Threads, and processes of `multiprocessing`, start without an event in some versions of Python: these functions are replaced for good.
    """
    from multiprocessing import util  # late: few applications need it

    util.spawnv_passfds = partial(_spawn, util.spawnv_passfds)
    _thread.start_new_thread = partial(_start_unknown, _thread.start_new_thread)
    threading.Thread.start = _start_of(threading.Thread.start)  # type: ignore[method-assign, assignment]
    sys.addaudithook(_on_event)


def _spawn(spawn: Callable[..., int], path: Any, args: Sequence[Any], *passed: Any) -> int:
    sys.audit("subprocess.Popen", path, [os.fsdecode(path)], None, None)
    return spawn(path, args, *passed)


def _start_unknown(start: Callable[..., int], *args: Any) -> int:
    if (loop := _loop_of_thread()) is not None:
        _forbid(loop, "starts a thread without threading.Thread")
    return start(*args)


def _start_of(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @wraps(start)
    def guarded_start(self: threading.Thread) -> None:
        if (loop := _loop_of_thread()) is not None:
            # a daemon or a thread of a pool may have other work after the replay; any other thread works for the replayed turn alone
            is_shared = self.daemon or getattr(self, "_target", None) is getattr(pool_threads, "_worker", self)
            self.run = partial(_run_guarded, loop.replay, self.run, is_shared)  # type: ignore[method-assign]
        start(self)

    return guarded_start


def _run_guarded(replay: _Replay, run: Callable[[], None], is_shared: bool) -> None:
    _guarded.replay, _guarded.is_shared = replay, is_shared
    run()


def _on_event(event: str, args: tuple[Any, ...]) -> None:
    if (describe := _ACTIONS.get(event)) is not None and (loop := _loop_of_thread()) is not None:
        _forbid(loop, describe(args)[:_ACTION_MAX])


def _loop_of_thread() -> DetachedLoop | None:
    """The loop of the replay that this thread belongs to."""
    loop = asyncio._get_running_loop()
    if isinstance(loop, DetachedLoop):
        return loop
    replay = _guarded.replay
    return None if replay is None or (_guarded.is_shared and replay.has_ended) else replay.loop


def _forbid(loop: DetachedLoop, action: str) -> NoReturn:
    loop.attempt = loop.attempt or action
    raise OutsideForbidden(f"a replay has no network and starts no programs, and the code {action}; put it into a step")
