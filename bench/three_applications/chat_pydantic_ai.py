"""A chat that remembers, streams and continues after a restart: `python chat_pydantic_ai.py anna`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic_ai import Agent, ModelMessagesTypeAdapter

from bench.three_applications.stubs_pydantic_ai import chatter

assistant = Agent(chatter, instructions="Be brief.")


async def send(session: str, text: str) -> AsyncIterator[str]:
    file = Path(f"{session}.json")
    history = ModelMessagesTypeAdapter.validate_json(file.read_bytes()) if file.exists() else None
    async with assistant.run_stream(text, message_history=history) as result:
        async for piece in result.stream_text(delta=True):
            yield piece
        unfinished = file.with_suffix(".part")
        unfinished.write_bytes(result.all_messages_json())
        unfinished.rename(file)


async def main(session: str) -> None:
    for line in sys.stdin:
        async for piece in send(session, line.strip()):
            print(piece, end="", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
