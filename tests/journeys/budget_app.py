"""`python -m tests.journeys.budget_app CHILDREN TOKENS`: a worker, until it is killed.

One agent of its application delegates to CHILDREN children. Each calls a model, and together they may use TOKENS tokens.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from heliograph import Context, Delegation, Heliograph, open_runtime

OUTPUT_TOKENS = 100


def application(children: int, tokens: int) -> Heliograph:
    app = Heliograph("shared-budget", max_activations=children + 1)  # the agent and its children

    @app.agent(activate_on=["workflow:start"], updates="found", budget={"tokens": tokens})
    async def lead(ctx: Context) -> list[Any]:
        return [result.output for result in await ctx.delegates([Delegation("child", n) for n in range(children)])]

    app.prompt_agent("child", "Work.", model="openai-chat:gpt-5", on_request=True, max_output_tokens=OUTPUT_TOKENS)
    return app


async def main() -> None:
    app = application(*map(int, sys.argv[1:]))
    # so long that no worker loses a turn under load: the test itself ends the leases of the worker that it kills
    async with open_runtime() as runtime:
        worker = runtime.worker(app.workflow, concurrency=8, lease_seconds=600.0)
        worker.watchdog.interval_seconds = 0.2
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
