"""Thirty documents are summarized, eight at a time, and joined into a digest.

python documents_langgraph.py d1 documents.json
"""

import json
import operator
import os
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from bench.three_applications.stubs_langgraph import digest, summary


class Work(TypedDict, total=False):
    documents: list[str]
    summaries: Annotated[list[tuple[int, str]], operator.add]
    digest: str


def fan_out(state: Work) -> list[Send]:
    return [Send("summarizer", {"index": i, "text": text}) for i, text in enumerate(state["documents"])]


def summarize(document: dict[str, Any]) -> Work:
    return {"summaries": [(document["index"], summary.invoke(f"Summarize: {document['text']}").text)]}


def edit(state: Work) -> Work:
    texts = [text for _, text in sorted(state["summaries"])]
    return {"digest": digest.invoke(f"Write a digest of: {texts}").text}


graph = StateGraph(Work)
graph.add_node("summarizer", summarize)
graph.add_node("editor", edit)
graph.add_conditional_edges(START, fan_out, ["summarizer"])
graph.add_edge("summarizer", "editor")
graph.add_edge("editor", END)


def main(name: str, documents: list[str]) -> dict[str, Any]:
    with PostgresSaver.from_conn_string(os.environ["DATABASE_URL"]) as saver:
        saver.setup()
        app = graph.compile(saver)
        config: Any = {"configurable": {"thread_id": name}, "max_concurrency": 8}
        started = app.get_state(config).values  # a second call continues after a crash
        return app.invoke(None if started else {"documents": documents}, config, durability="sync")


if __name__ == "__main__":
    print(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())["documents"]))
