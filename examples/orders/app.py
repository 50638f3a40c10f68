"""The program of the animation in README.md: an order in four steps, each of which takes a second."""

import time

from heliograph import Context, Heliograph, Step

app = Heliograph("orders")


def work(task: str) -> str:
    time.sleep(1)
    print(f"    {task}: done", flush=True)
    return task


@app.agent(activate_on=["workflow:start"], updates="shipped")
async def fulfil(ctx: Context) -> bool:
    tasks = {
        "reserve": "reserve the goods",
        "charge": "charge the card",
        "print": "print the label",
        "ship": "ship the parcel",
    }
    for name, task in tasks.items():
        await ctx.step(Step(name, effect="idempotent"), work, task)
    return True
