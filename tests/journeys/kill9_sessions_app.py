"""`python -m tests.journeys.kill9_sessions_app`: send five messages under fixed ids to a session, and print the replies and the history.

The agent appends each message to the file in KILL9_EFFECTS; at the second one it waits until the file in KILL9_GATE exists.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from heliograph import Context, Heliograph

app = Heliograph("kill9sessions")


def append(text: str) -> None:
    with Path(os.environ["KILL9_EFFECTS"]).open("a") as file:
        file.write(f"{text}\n")


@app.agent(on_request=True)
async def assistant(ctx: Context) -> str:
    text = str(ctx.task["text"])
    append(text)
    while text == "two" and not os.access(os.environ["KILL9_GATE"], os.F_OK):
        await ctx.sleep(0.01)
    return f"to {text}"


async def main() -> None:
    async with app.session("anna", lease_seconds=2.0) as session:
        texts = ["one", "two", "three", "four", "five"]
        pending = [await session.post(text, message_id=text) for text in texts]
        replies = [await each.reply() for each in pending]
        history = await session.history()
    print(json.dumps([[(each.text, each.turn_id) for each in replies], [(each.role, each.text) for each in history]]))


if __name__ == "__main__":
    asyncio.run(main())
