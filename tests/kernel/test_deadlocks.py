"""Random batches on many connections over few agents: no order leads to a deadlock, and the data remain valid. Each call
gets its time before it starts, so the order of times differs from the order of commits."""

from __future__ import annotations

import asyncio
import itertools
import random
from datetime import timedelta
from typing import Any

import pytest

from tests.kernel.kit import (
    START,
    TARGET,
    Connect,
    Item,
    Kernel,
    draft,
    ending,
    message,
    run_item,
    stopping,
    turn_item,
    woken,
)
from tests.kernel.waits import TOKEN, activated, child, command, result, timer

CLIENTS = 6
CALLS_EACH = 150
RUNS = [f"run_{n}" for n in range(6)]
AGENTS = ["author", "critic", "judge"]


class Client:
    """One connection that makes random calls."""

    turns = itertools.count(1)

    def __init__(self, kernel: Kernel, seed: int, clock: itertools.count[int]):
        self.kernel = kernel
        self.random = random.Random(seed)
        self.clock = clock
        self.owned: list[Item] = []
        self.seen: set[tuple[str, str]] = set()

    async def work(self) -> None:
        moves = [
            self.start, self.enqueue, self.enqueue, self.claim, self.claim, self.append, self.renew, self.finish, self.finish,
            self.suspend, self.suspend, self.report, self.report, self.release_turns, self.stop, self.sweep, self.sweep, self.pay,
            self.relay, self.prune,
        ]  # fmt: skip
        for _ in range(CALLS_EACH):
            await self.random.choice(moves)()

    async def call(self, function: str, *args: Any) -> Any:
        self.kernel.now = START + timedelta(milliseconds=10 * next(self.clock))
        answer = await self.kernel.call(function, *args)
        for each in answer if isinstance(answer, list) else [answer]:
            if isinstance(each, dict) and "outcome" in each:
                self.seen.add((function, each["outcome"]))
        return answer

    def some(self, items: list[Any]) -> list[Any]:
        return self.random.sample(items, self.random.randint(0, min(len(items), 4)))

    def wakes(self) -> dict[str, str]:
        return {f"turn_{next(self.turns)}": self.random.choice(AGENTS) for _ in range(self.random.randint(1, 3))}

    def limits(self) -> dict[str, Any]:
        return {"ttl_seconds": self.random.choice([1, 5, 600]), "max_attempts": self.random.randint(1, 3)}

    async def start(self) -> None:
        await self.call("start_runs", [run_item(run, AGENTS, self.wakes(), **self.limits()) for run in self.some(RUNS)])

    async def enqueue(self) -> None:
        to = [(self.random.choice(RUNS), agent, turn) for turn, agent in self.wakes().items()]
        await self.call("enqueue", [message(run, agent, turn, **self.limits()) for run, agent, turn in to])

    async def claim(self) -> None:
        lease = self.random.choice([0.2, 1.0, 60.0])
        self.owned += await self.call("claim", [{"target": TARGET}], "worker", self.random.randint(1, 4), lease)

    async def append(self) -> None:
        note = draft("note", "sig_x_1", is_pending=self.random.random() < 0.3)
        await self.call("append", [
            turn_item(each, note, signals_emitted=self.random.randint(0, 2), cards=[{"card_id": f"{each['turn_id']} {n}", "kind": "n", "content": n}])
            for n, each in enumerate(self.some(self.owned))
        ])  # fmt: skip

    async def renew(self) -> None:
        await self.call("renew", [turn_item(each) for each in self.some(self.owned)], 1.0)

    async def finish(self) -> None:
        ended = self.some(self.owned)
        items = [ending(each, wakes=self.wakes()) for each in ended]
        for each, answer in zip(ended, await self.call("finish", items), strict=True):
            if answer["outcome"] == "conflict":
                each["run"] = answer["run"]
            else:
                self.owned.remove(each)
        if self.random.random() < 0.3:  # as after a lost reply
            await self.call("finish", items)

    async def suspend(self) -> None:
        items = []
        for each in self.some(self.owned):
            turn = f"turn_{next(self.turns)}"
            calls = self.some([command("c1"), command("c2"), timer("c3", 1.0),
                               child("c4", self.random.choice(AGENTS), turn, instance=turn)])  # fmt: skip
            join = self.random.choice(["all", "each"])
            items.append(
                turn_item(each, *activated("critic"), signals_emitted=self.random.randint(0, 2), calls=calls, join=join)
            )
            self.owned.remove(each)
        await self.call("suspend", items)

    async def report(self) -> None:
        waits = await self.kernel.rows("turn_waiting_tools", "agent_turn_id, tool_call_id", "state = 'open'")
        asked = [result(row["agent_turn_id"], row["tool_call_id"], token=TOKEN) for row in self.some(waits)]
        await self.call("report", [*asked, *asked[:1]])

    async def release_turns(self) -> None:
        function = self.random.choice(["release", "defer"])
        more: Item = {"delay_seconds": self.random.choice([0, 0.05])} if function == "defer" else {}
        await self.call(function, [turn_item(each, **more) for each in self.some(self.owned)])

    async def stop(self) -> None:
        mode, grace = self.random.choice(["force", "graceful"]), self.random.choice([0, 0.5])
        turns = [f"turn_{self.random.randint(1, 200)}" for _ in range(self.random.randint(0, 3))]
        await self.call("stop", [stopping(turn, mode, grace_seconds=grace) for turn in turns])
        if self.random.random() < 0.1:
            await self.call("stop_runs", [stopping(run, mode, grace_seconds=grace) for run in self.some(RUNS)])

    async def sweep(self) -> None:
        kinds = ["leases", "expired", "queued", "waits", "reports", "stops", "stuck"]
        kind = self.random.choice(kinds)
        answer = await self.call(f"sweep_{kind}", 10, *([""] * (kind == "stuck")))
        assert answer["failed"] == []

    async def prune(self) -> None:
        await self.call("prune", START + timedelta(milliseconds=10 * next(self.clock) - 500), 5)

    async def pay(self) -> None:
        items = []
        for pending in await self.kernel.pending(limit=4):
            drafts, activations = woken(self.wakes(), cause={"seq": pending["signals"][0]["seq"]})
            drafts.insert(0, draft("debt:paid", "sig_x_1"))
            items.append({"run_id": pending["run"]["run_id"], "signals": drafts,
                          "version": pending["run"]["version"], "reaction": {"activations": activations}})  # fmt: skip
        self.random.shuffle(items)
        await self.call("react", items)

    async def relay(self) -> None:
        keys = [event["key"] for event in await self.kernel.call("read_outbox", 20)]
        self.random.shuffle(keys)
        await self.call("mark_published", keys)


@pytest.mark.more
@pytest.mark.proves("K17", "L0-01", "L0-14", "K6", "K7", "K12", "K24", "K25", "K27")
async def test_random_batches_over_many_connections_never_deadlock_and_keep_the_ledger_sound(
    kernel: Kernel, beside: Connect
) -> None:
    clock = itertools.count()
    clients = [Client(await beside(), seed, clock) for seed in range(CLIENTS)]
    await asyncio.gather(*(client.work() for client in clients))  # a deadlock is an error of one of them
    assert set(await kernel.checks()) <= {"R6"}  # stuck runs: all their turns have ended, and no agent was woken
    kernel.is_corrupted = True
    # which outcomes come is up to the machine and its load; that every edge and every outcome does is the simulator's claim
    seen = set().union(*(client.seen for client in clients))
    assert seen >= {("start_runs", "started"), ("enqueue", "queued"), ("append", "ok"), ("finish", "ok")}
