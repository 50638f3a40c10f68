"""`python -m tests.journeys.kill9_app RUN_ID EFFECT`: run an application in the foreground of one process.

Each agent appends its name to the file in KILL9_EFFECTS; `middle` then waits until the file in KILL9_GATE exists.
Prints the outcome and the state.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from heliograph import Context, Heliograph


def make_app(effect: Any) -> Heliograph:
    app = Heliograph("kill9", reducers={"done": lambda old, new: sorted([*(old or []), new])})

    def append(name: str) -> str:
        with Path(os.environ["KILL9_EFFECTS"]).open("a") as file:
            file.write(f"{name}\n")
        return name

    @app.agent(activate_on=["workflow:start"], emits=["first:done"], updates="done")
    def first(_ctx: Context) -> str:
        return append("first")

    @app.agent(activate_on=["first:done"], emits=["middle:done"], updates="done", effect=effect)
    async def middle(ctx: Context) -> str:
        append("middle")
        while not os.access(os.environ["KILL9_GATE"], os.F_OK):
            await ctx.sleep(0.01)
        return "middle"

    @app.agent(activate_on=["middle:done"], updates="done")
    def last(_ctx: Context) -> str:
        return append("last")

    return app


async def main() -> None:
    result = await make_app(sys.argv[2]).run({}, run_id=sys.argv[1], lease_seconds=2.0)
    print(json.dumps([result.outcome, result.state]))


if __name__ == "__main__":
    asyncio.run(main())
