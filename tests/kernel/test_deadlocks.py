"""Many connections, batches drawn at random over few agents: whatever the order, nobody waits in a circle, and what is
left behind is sound. The time of each call is given out before the call is made, so times and commits do not agree."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Connect, Item, Kernel, activation, draft, ending, message, run_item, saying

CLIENTS = 6
CALLS_EACH = 150
RUNS = [f"run_{n}" for n in range(6)]
AGENTS = ["author", "critic", "judge"]


class Client:
    """One connection that calls what comes to its mind."""

    def __init__(self, kernel: Kernel, seed: int, clock: itertools.count[int], turns: itertools.count[int]):
        self.kernel = kernel
        self.random = random.Random(seed)
        self.clock = clock
        self.turns = turns
        self.held: list[Item] = []
        self.outcomes: set[str] = set()
        self.moves = [
            self.start, self.enqueue, self.enqueue, self.claim, self.claim, self.append, self.renew, self.finish, self.finish,
            self.sweep, self.pay, self.relay,
        ]  # fmt: skip

    async def work(self) -> None:
        for _ in range(CALLS_EACH):
            await self.random.choice(self.moves)()

    async def call(self, function: str, *args: Any) -> Any:
        self.kernel.wait(0)
        self.kernel.now = self.kernel.now.replace(microsecond=0) if False else self.kernel.now
        return await self.kernel.call(function, *args)

    def turn(self) -> str:
        return f"turn_{next(self.turns)}"

    def some(self, items: list[Any]) -> list[Any]:
        return self.random.sample(items, self.random.randint(0, min(len(items), 4)))

    def wakes(self) -> dict[str, str]:
        return {self.turn(): self.random.choice(AGENTS) for _ in range(self.random.randint(0, 3))}
