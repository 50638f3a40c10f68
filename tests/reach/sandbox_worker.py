"""A worker for the tests of the sandbox: it runs each program that it reads as a line of JSON, and answers with a line.

`python -m tests.reach.sandbox_worker [NUMBER [ARGUMENT]]`: first it makes the kernel reject a system call (where its first
argument is ARGUMENT), as a kernel or a container does that lacks it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import struct
import sys
from typing import Any

from heliograph.errors import SetupError
from heliograph.tools import SandboxLimits, code_tool


def reject(number: int, argument: int | None) -> None:
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1 if argument is None else 3, number)]
    if argument is not None:
        lines += [(0x20, 0, 0, 16), (0x15, 0, 1, argument)]
    lines += [(0x06, 0, 0, 0x00050016), (0x06, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, header, 0, 0) == 0


async def run(code: str, limits: dict[str, int], options: dict[str, Any], seconds: float | None) -> dict[str, object]:
    try:
        async with asyncio.timeout(seconds):
            ran = await code_tool(limits=SandboxLimits(**limits), **options)(code=code)
    except TimeoutError:
        return {"cancelled": True}
    except SetupError as error:
        return {"refused": error.code, "message": error.message}
    return dict(ran)


def main() -> None:
    if len(sys.argv) > 1:
        reject(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
    for line in sys.stdin:
        request = json.loads(line)
        answer = asyncio.run(run(request["code"], request["limits"], request["options"], request["seconds"]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
