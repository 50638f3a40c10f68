"""`python -m bench.provider`: a model that calls a tool `CALLS` times and then answers, behind OpenAI's chat protocol on a socket.

It prints its address, and serves until its stdin ends. It keeps nothing between requests: the conversation in a request says how many calls
were made. So any number of agents may use it at once, and its own time is the same for each system.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.load import ITEMS, STEPS
from tests.reach.model_server import Answer, Provider, serve

ROOT = Path(__file__).resolve().parent.parent
CALLS = ITEMS[STEPS] - 1  # the last step is the answer


class CallingProvider(Provider):
    """Chooses each answer by the conversation."""

    def next(self, body: dict[str, Any], problem: str | None) -> Answer:
        if problem is not None:
            return Answer((problem,), status=400)
        made = sum(message["role"] == "tool" for message in body["messages"])
        if made < CALLS:
            return Answer(calls=[(f"call_{made}", "add", '{"a": 1, "b": 2}')])
        return Answer(("The sum ", "is ", "three."))


@asynccontextmanager
async def providing() -> AsyncIterator[None]:
    """Serve the model in a process of its own during a block, and set the variables by which this process and those that it starts find it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.provider", cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    before = dict(os.environ)
    os.environ["OPENAI_BASE_URL"] = f"{(await process.stdout.readline()).decode().strip()}/v1"
    os.environ["OPENAI_API_KEY"] = "sk-not-a-key"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        process.stdin.close()
        await process.wait()


def main() -> None:
    with serve(CallingProvider()) as provider:
        print(provider.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
