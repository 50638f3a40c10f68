"""`python -m tests.journeys.kill9_gateway_app serve|FAILPOINT`: two deployments that communicate over HTTP.

serve: the gateway and a worker of the deployment that executes tasks; it prints its URL. FAILPOINT: a worker of the other one, which
kills itself with -9 at this point; `-` for none. It prints the state of the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import uvicorn

from heliograph import Context, Heliograph, open_runtime
from heliograph.gateway import Gateway
from heliograph.worker import gateway_sender
from heliograph.world.real import RealWorld

gateway_sender.HIDDEN_SECONDS = 1.0  # the next worker takes over soon
far = Heliograph("far")


@far.agent(on_request=True)
def ship(ctx: Context) -> Any:
    with Path(os.environ["KILL9_EFFECTS"]).open("a") as file:
        file.write(f"{ctx.task['item']}\n")
    return f"shipped {ctx.task['item']}"


async def serve() -> None:
    server = uvicorn.Server(uvicorn.Config(Gateway(far), port=0, log_level="error", ws="none"))
    async with open_runtime() as runtime:
        working = asyncio.create_task(runtime.serve(runtime.worker(far.workflow), asyncio.Event()))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0)
        print(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)
        await asyncio.wait({working, serving}, return_when=asyncio.FIRST_COMPLETED)


async def deliver(failpoint: str) -> None:
    async def kill_there(_world: RealWorld, name: str) -> None:
        if name == failpoint:
            os.kill(os.getpid(), signal.SIGKILL)

    world: Any = RealWorld
    world.failpoint = kill_there
    route = {"match": {"target_agent": "ship"}, "destination": {"gateway": os.environ["KILL9_GATEWAY"]}}
    near = Heliograph("near", routes={"kind": "MessageRouting", "routes": [route]})

    @near.agent(activate_on=["workflow:start"], updates="answer")
    async def order(ctx: Context) -> Any:
        return await ctx.delegate("ship", {"item": "lamp"})

    result = await near.run(run_id="order", lease_seconds=2.0)
    print(json.dumps(result.state))


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1] == "serve" else deliver(sys.argv[1]))
