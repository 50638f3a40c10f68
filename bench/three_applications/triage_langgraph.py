"""Support triage: two classifiers in parallel, then a clerk whose refunds above 100 wait for a person.

python triage_langgraph.py start t1 "My tea is broken"
python triage_langgraph.py approve t1
"""

import os
import sys
from typing import Any, TypedDict

from langchain_core.tools import tool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, interrupt

from bench.three_applications.stubs_langgraph import clerk, mood, topic


class Ticket(TypedDict, total=False):
    message: str
    topic: str
    mood: str
    answer: str


@tool
def find_order(message: str) -> str:
    """Find the order that a message is about."""
    return "A-17"


@tool
def refund(order: str, amount: int) -> str:
    """Pay a customer back."""
    if amount > 100 and not interrupt({"question": "May clerk call refund?", "order": order, "amount": amount}):
        return "a person has denied the refund"
    return f"paid back {amount} for {order}"


helper = create_react_agent(clerk, [find_order, refund])


def name_topic(state: Ticket) -> Ticket:
    return {"topic": topic.invoke(f"Name the topic of: {state['message']}").text}


def name_mood(state: Ticket) -> Ticket:
    return {"mood": mood.invoke(f"Name the mood of: {state['message']}").text}


def help_customer(state: Ticket) -> Ticket:
    prompt = f"Help this {state['mood']} customer with a {state['topic']}: {state['message']}"
    return {"answer": helper.invoke({"messages": [("user", prompt)]})["messages"][-1].text}


graph = StateGraph(Ticket)
graph.add_node("topic_node", name_topic)
graph.add_node("mood_node", name_mood)
graph.add_node("clerk", help_customer)
graph.add_edge(START, "topic_node")
graph.add_edge(START, "mood_node")
graph.add_edge(["topic_node", "mood_node"], "clerk")
graph.add_edge("clerk", END)


def main(action: str, ticket: str, message: str = "") -> dict[str, Any]:
    with PostgresSaver.from_conn_string(os.environ["DATABASE_URL"]) as saver:
        saver.setup()
        app = graph.compile(saver)
        given: Any = Command(resume=True) if action == "approve" else {"message": message}
        return app.invoke(given, {"configurable": {"thread_id": ticket}})


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
