"""A warm `helio`: it has imported the modules of the commands, and forks a process for each command.

    python tests/faces/helio_server.py SOCKET

A command is the path of `helio` with its arguments, or `-m` with a module and its arguments. To a test, it is a process of its own: arguments, folder, environment, streams, exit code. It saves the start
of an interpreter and its imports, which take thirty times as long as most commands.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

COMMANDS = (
    "approval",
    "box",
    "callback",
    "calls",
    "chat",
    "db",
    "init",
    "live_view",
    "maintenance",
    "roles",
    "run",
    "run_show",
    "runs",
    "send",
    "signal",
    "stop",
    "turn",
    "validate",
    "worker",
)
OTHERS = ("heliograph.runtime", "heliograph.client.client", "heliograph.embedded.server", "pydantic")
REQUEST_BYTES = 1 << 20
_PARENT_DEATH_SIGNAL = 1  # of <linux/prctl.h>


def serve(listener: socket.socket) -> None:
    """Fork for each command, until stdin ends, which ends the forks, too. Returns in the forked processes, which are ready to run the command."""
    waiting, parent = selectors.DefaultSelector(), os.getpid()
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj == 0:
                os._exit(0)
            elif key.fileobj is listener:
                client, _address = listener.accept()
                request, streams, _, _ = socket.recv_fds(client, REQUEST_BYTES, 3)
                if (pid := os.fork()) == 0:
                    end_with(parent)
                    for inherited in (waiting, listener, client):
                        inherited.close()
                    become(json.loads(request), streams)
                    return
                for stream in streams:
                    os.close(stream)
                ended = os.pidfd_open(pid)
                waiting.register(ended, selectors.EVENT_READ, (pid, client))
                waiting.register(client, selectors.EVENT_READ, (pid, ended, client))
            elif isinstance(key.data[1], int):  # the caller passes a signal on, or has hung up
                passed_on = key.data[2].recv(100)
                os.kill(key.data[0], int(passed_on or signal.SIGKILL))
                if not passed_on:
                    waiting.unregister(key.fileobj)
            else:
                pid, client = key.data
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(BrokenPipeError):
                    client.sendall(str(code).encode())
                waiting.unregister(key.fileobj)
                with suppress(KeyError):
                    waiting.unregister(client)
                client.close()
                os.close(key.fd)


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Take over the streams, folder, environment and arguments that the caller has sent."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = request["command"]
    sys.path[0] = os.getcwd() if sys.argv[0] == "-m" else str(Path(sys.argv[0]).parent)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors, buffering = ("backslashreplace", 1) if name == "stderr" else (None, -1)
        opened = open(number, "w" if number else "r", buffering, errors=errors)  # noqa: SIM115 - as long as we live
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)


if __name__ == "__main__":
    for command in COMMANDS:
        import_module(f"heliograph.cli.{command}")
    for other in OTHERS:
        import_module(other)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as commands:
        commands.bind(sys.argv[1])
        commands.listen()
        os.write(1, b"ready\n")
        serve(commands)
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        from heliograph.cli.main import main

        sys.exit(main())
