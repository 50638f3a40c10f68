"""LangGraph with its Postgres saver: graphs run in the callers' process; `interrupt` suspends one."""

from __future__ import annotations

import operator
import os
import uuid
from contextlib import AsyncExitStack
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from bench.load import AGENTS, CHILDREN, CHILDREN_OF_AN_AGENT, RUN_OF_AGENTS, STEPS
from bench.peers.model import PROMPT, Model, add
from bench.peers.peer import Peer

SAVERS = 8


class State(TypedDict, total=False):
    n: int
    result: dict[str, Any]


class Many(TypedDict, total=False):
    messages: Annotated[list[Any], operator.add]


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
        self._agents = {CHILDREN: _children(savers[0]), RUN_OF_AGENTS: _agents(savers[0])}
        if "OPENAI_BASE_URL" in os.environ:
            self._model = Model()
            self._stack.push_async_callback(self._model.close)
            self._agents[STEPS] = _steps(self._model, savers[0])
        await super().open(callers)

    async def close(self) -> None:
        await super().close()
        await self._stack.aclose()

    async def start(self, lane: int) -> Any:
        return await self._run(self._jobs[lane % SAVERS], {"n": 1}, uuid.uuid4().hex)

    async def start_turn(self, lane: int) -> Any:
        return await self._run(self._turns[lane % SAVERS], {"n": 1}, uuid.uuid4().hex)

    async def start_agents(self, work: str) -> Any:
        prompt = [{"role": "user", "content": PROMPT}] if work == STEPS else []
        return await self._run(self._agents[work], {"messages": prompt}, uuid.uuid4().hex)

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


def _steps(model: Model, saver: Any) -> Any:
    async def ask(state: Many) -> Many:
        return {"messages": [await model.ask(state["messages"])]}

    async def call(state: Many) -> Many:
        return {"messages": [add(call) for call in state["messages"][-1]["tool_calls"]]}

    graph = StateGraph(Many)
    graph.add_node("ask", ask)
    graph.add_node("call", call)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", lambda state: "call" if "tool_calls" in state["messages"][-1] else END)
    graph.add_edge("call", "ask")
    return graph.compile(checkpointer=saver)


def _children(saver: Any) -> Any:
    graph = StateGraph(Many)
    graph.add_node("parent", _nothing)
    graph.add_node("child", _ok)
    graph.add_node("joined", _nothing)
    graph.add_edge(START, "parent")
    graph.add_conditional_edges("parent", lambda _: [Send("child", {}) for _ in range(CHILDREN_OF_AN_AGENT)], ["child"])
    graph.add_edge("child", "joined")
    return graph.compile(checkpointer=saver)


def _agents(saver: Any) -> Any:
    graph = StateGraph(Many)
    for number in range(AGENTS):
        graph.add_node(f"agent-{number}", _ok)
        graph.add_edge(START, f"agent-{number}")
    return graph.compile(checkpointer=saver)


async def _nothing(_: Many) -> Many:
    return {}


async def _ok(_: Many) -> Many:
    return {"messages": [{"ok": True}]}
