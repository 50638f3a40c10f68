"""Generated applications for the tests of replay: agents in parallel, joins, guards, steps, retries, delegations, people, deltas."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

from heliograph import Context, Delegation, Heliograph, Step, tool
from heliograph.errors import HarnessError
from heliograph.models import ModelReply, ModelRequest, TextDelta, ThinkingDelta, ToolCall, ToolMessage
from heliograph.policy.retry import RetryPolicy
from heliograph.ports import Chunk


class Effects:
    """Counts what a replay must not do: calls of models, tools and steps."""

    def __init__(self) -> None:
        self.count = 0


class Speaker:
    """A model whose reply depends on its seed and on the length of its conversation, streamed in pieces over virtual time."""

    def __init__(self, seed: str, effects: Effects, *, tools: bool, fails: bool):
        self.model = f"speaker-{seed}"
        self._seed = seed
        self._effects = effects
        self._tools = tools
        self._fails = fails

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self._effects.count += 1
        turns = len(request.messages)
        dice = random.Random(f"{self._seed}/{turns}")
        if self._fails and self._effects.count % 3 == 1:
            raise HarnessError("the provider is busy", recoverable=True)
        if self._tools and not any(isinstance(message, ToolMessage) for message in request.messages):
            calls = tuple(ToolCall(str(n), "look", {"word": f"w{n}"}) for n in range(dice.randint(1, 3)))
            yield ModelReply("", tool_calls=calls, input_tokens=3, output_tokens=2)
            return
        pieces = [f"word{dice.randint(0, 9)} " for _ in range(dice.randint(1, 6))]
        thoughts = "I think." if dice.random() < 0.3 else ""
        if thoughts:
            yield ThinkingDelta(thoughts)
        for piece in pieces:
            await asyncio.sleep(dice.random() * 0.08)
            yield TextDelta(piece)
        yield ModelReply("".join(pieces), thinking=thoughts, input_tokens=turns, output_tokens=len(pieces))


def topology(
    seed: int, effects: Effects | None = None, *, is_guard_negated: bool = False, change: str | None = None
) -> Heliograph:
    """The application of a seed: always the same, except for the object that counts effects, the verdicts of its guard, and one change.

    change: `prompt`, all prompts are others; `step`, some steps have other names.
    """
    dice, counted = random.Random(f"topology/{seed}"), effects or Effects()
    app = Heliograph("generated", memory=None)

    @tool(effect="idempotent")
    async def look(word: str) -> str:
        """Look up a word."""
        counted.count += 1
        await asyncio.sleep(0.02 * len(word))
        return word.upper()

    names = [f"a{n}" for n in range(dice.randint(2, 4))]
    for name in names:
        _add_agent(app, name, dice, counted, look, change)
    app.agent(name="helper", on_request=True)(_helper)
    app.agent(name="join", activate_when_all=[f"state:{name}:changed" for name in names[:2]], updates="joined",
              when=lambda state: len(state) > 0)(_join(counted))  # fmt: skip
    limit = dice.randint(0, 2)
    app.agent(name="guarded", activate_on=["state:joined:changed", "state:a0:changed"], when=lambda state: (len(state.get("joined", "")) > 10 * limit) is not is_guard_negated,
              updates="guarded")(_guarded)  # fmt: skip
    return app


def _add_agent(
    app: Heliograph, name: str, dice: random.Random, effects: Effects, look: Any, change: str | None
) -> None:
    on, prompt = ["workflow:start"], f"{name}{' again' if change == 'prompt' else ''}: {{signal.payload}}"
    kind = dice.choice(["prompt", "prompt", "steps", "retry", "delegate", "ask", "pause", "plain"])
    if kind == "prompt":
        model = Speaker(f"{name}{dice.random()}", effects, tools=dice.random() < 0.5, fails=dice.random() < 0.2)
        app.prompt_agent(name, prompt, model=model, tools=[look], activate_on=on, updates=name)
    else:
        app.agent(name=name, activate_on=on, updates=name, emits=["noted"])(
            _function(kind, effects, dice.randint(1, 3), "t" if change == "step" else "s")
        )


def _function(kind: str, effects: Effects, count: int, prefix: str) -> Any:
    async def step(n: int = 0) -> str:
        effects.count += 1
        await asyncio.sleep(0.01 * n)
        return f"step {n}"

    async def flaky(n: int) -> str:
        effects.count += 1
        if effects.count % 2:
            raise ConnectionError("lost")
        return f"after {n}"

    async def steps(ctx: Context) -> str:
        ctx.progress(0.5, "half")
        found = await asyncio.gather(*(ctx.step(f"{prefix}{n}", step, n) for n in range(count + 1)))
        ctx.emit("noted", {"count": len(found)})
        return ", ".join(found)

    async def retry(ctx: Context) -> str:
        policy = RetryPolicy(initial_delay_seconds=0.2, max_attempts=4, jitter=False)
        return str(await ctx.step(Step("flaky", effect="idempotent", retry=policy), flaky, count))

    async def delegate(ctx: Context) -> str:
        found = await ctx.delegates([Delegation("helper", {"n": n}) for n in range(count)])
        return ", ".join(str(each.output) for each in found)

    async def ask(ctx: Context) -> str:
        await ctx.step("before", step, 1)
        return f"{(await ctx.approve(f'may {count}?')).by}"

    async def pause(ctx: Context) -> str:
        await ctx.pause(0.3)
        await ctx.sleep(0.05)
        return "rested"

    def plain(ctx: Context) -> str:
        return f"{ctx.signal.name} {count}"

    return {"steps": steps, "retry": retry, "delegate": delegate, "ask": ask, "pause": pause, "plain": plain}[kind]


def _helper(ctx: Context) -> str:
    return f"helped {ctx.task}"


def _join(effects: Effects) -> Any:
    async def join(ctx: Context) -> str:
        return " + ".join(f"{key}={value}" for key, value in sorted(ctx.document.items()))

    return join


def _guarded(ctx: Context) -> str:
    return "passed"
