"""LangGraph with its Postgres saver: a graph of one node runs in the callers' process; `interrupt` suspends it."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from typing import Any, TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from bench.peers.peer import Peer

SAVERS = 8


class State(TypedDict, total=False):
    n: int
    result: dict[str, Any]


async def _job(state: State) -> State:
    return {"result": {"ok": True}}


async def _turn(state: State) -> State:
    return {"result": interrupt({"tool": state["n"]})}


class LangGraph(Peer):
    """LangGraph with several savers, because a saver locks itself during each query."""

    has_worker = False

    async def install(self) -> None:
        async with AsyncPostgresSaver.from_conn_string(self.url) as saver:
            await saver.setup()

    async def open(self, callers: int) -> None:
        self._stack = AsyncExitStack()
        savers = [
            await self._stack.enter_async_context(AsyncPostgresSaver.from_conn_string(self.url)) for _ in range(SAVERS)
        ]
        self._jobs = [_graph(_job, saver) for saver in savers]
        self._turns = [_graph(_turn, saver) for saver in savers]
        await super().open(callers)

    async def close(self) -> None:
        await super().close()
        await self._stack.aclose()

    async def start(self, lane: int) -> Any:
        return await self._run(self._jobs[lane % SAVERS], {"n": 1}, uuid.uuid4().hex)

    async def start_turn(self, lane: int) -> Any:
        return await self._run(self._turns[lane % SAVERS], {"n": 1}, uuid.uuid4().hex)

    async def report(self, lane: int, key: Any) -> None:
        await self._run(self._turns[lane % SAVERS], Command(resume={"r": 1}), key)

    async def _run(self, graph: Any, given: Any, thread: str) -> str:
        await graph.ainvoke(given, {"configurable": {"thread_id": thread}}, durability="sync")
        return thread


def _graph(node: Any, saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph.compile(checkpointer=saver)
