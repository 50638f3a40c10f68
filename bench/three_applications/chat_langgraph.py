"""A chat that remembers, streams and continues after a restart: `python chat_langgraph.py anna`."""

import os
import sys
from collections.abc import Iterator
from typing import Any

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from bench.three_applications.stubs_langgraph import chatter


def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [chatter.invoke([("system", "Be brief."), *state["messages"]])]}


graph = StateGraph(MessagesState)
graph.add_node("assistant", answer)
graph.add_edge(START, "assistant")
graph.add_edge("assistant", END)


def send(app: Any, session: str, text: str) -> Iterator[str]:
    config = {"configurable": {"thread_id": session}}
    for piece, _ in app.stream({"messages": [("user", text)]}, config, stream_mode="messages"):
        yield piece.text


if __name__ == "__main__":
    with PostgresSaver.from_conn_string(os.environ["DATABASE_URL"]) as saver:
        saver.setup()
        app = graph.compile(saver)
        for line in sys.stdin:
            for piece in send(app, sys.argv[1], line.strip()):
                print(piece, end="", flush=True)
            print()
