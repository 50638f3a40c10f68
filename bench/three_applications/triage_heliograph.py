"""Support triage: two classifiers in parallel, then a clerk whose refunds above 100 wait for a person.

helio run triage_heliograph.py:app --run-id t1 --state '{"message": "My tea is broken"}'
helio approval grant TURN CALL
"""

from typing import Literal, TypedDict

from bench.three_applications.stubs_heliograph import clerk, mood, topic
from heliograph import Heliograph, tool


class Ticket(TypedDict, total=False):
    message: str
    topic: str
    mood: str
    answer: str


@tool(effect="pure")
def find_order(message: str) -> str:
    """Find the order that a message is about."""
    return "A-17"


@tool(approval=lambda call: call["amount"] > 100)
def refund(order: str, amount: int) -> str:
    """Pay a customer back."""
    return f"paid back {amount} for {order}"


app = Heliograph("triage", state=Ticket)
app.prompt_agent(
    "topic",
    "Name the topic of: {state.message}",
    output=Literal["refund", "question"],
    model=topic,
    emits=["topic:known"],
    updates="topic",
)
app.prompt_agent(
    "mood",
    "Name the mood of: {state.message}",
    output=Literal["calm", "angry"],
    model=mood,
    emits=["mood:known"],
    updates="mood",
)
app.prompt_agent(
    "clerk",
    "Help this {state.mood} customer with a {state.topic}: {state.message}",
    model=clerk,
    tools=[find_order, refund],
    activate_when_all=["topic:known", "mood:known"],
    updates="answer",
)
