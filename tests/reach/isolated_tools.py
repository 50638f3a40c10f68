"""Functions that are called shut in: an application's own module."""

from __future__ import annotations

import os
import socket
import sys
from datetime import date

from heliograph import tool


@tool(isolated=True, effect="pure")
def weekday(day: date, times: int = 1) -> str:
    """The day of the week."""
    sys.stdout.write("what it prints is no answer")
    return day.strftime("%A") * times


@tool(isolated=True)
def spy(paths: list[str], port: int) -> dict[str, object]:
    """The environment, files and sockets that sandboxed code can reach."""
    found: dict[str, object] = {"environment": sorted(os.environ), "files": [], "sockets": []}
    for path in paths:
        try:
            with open(path, "rb") as file:
                found["files"] = [*found["files"], file.read(100).decode("latin-1")]  # type: ignore[misc]
        except OSError as error:
            found[path] = type(error).__name__
    try:
        socket.create_connection(("127.0.0.1", port), 1)
        found["sockets"] = ["connected"]
    except OSError as error:
        found["tcp"] = type(error).__name__
    return found


FORGED = [
    b"", b"5", b"{}", b"[]", b"null", b'"error"', b'{"error": 5}', b'{"result": 1}{"result": 2}', b"[" * 100_000, b"\xff",
]  # fmt: skip


@tool(isolated=True)
def forges(form: int) -> None:
    """Write something else in place of the answer."""
    os.write(3, FORGED[form])
    os._exit(0)


@tool(isolated=True)
async def fails() -> None:
    """Fail."""
    raise ValueError("no such thing")


def spin() -> None:
    """Use processor time without end."""
    while True:
        pass
