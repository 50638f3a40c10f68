"""Support triage: two classifiers in parallel, then a clerk whose refunds above 100 wait for a person.

python triage_pydantic_ai.py start t1 "My tea is broken"
python triage_pydantic_ai.py approve t1
"""

import asyncio
import sys
from pathlib import Path

from pydantic_ai import (
    Agent,
    AgentRunResult,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    RunContext,
)

from bench.three_applications.stubs_pydantic_ai import clerk, mood, topic

topics = Agent(topic)
moods = Agent(mood)
helper = Agent(clerk, output_type=[str, DeferredToolRequests])


@helper.tool_plain
def find_order(message: str) -> str:
    """Find the order that a message is about."""
    return "A-17"


@helper.tool
def refund(ctx: RunContext[object], order: str, amount: int) -> str:
    """Pay a customer back."""
    if amount > 100 and not ctx.tool_call_approved:
        raise ApprovalRequired
    return f"paid back {amount} for {order}"


async def start(ticket: str, message: str) -> str:
    named, felt = await asyncio.gather(
        topics.run(f"Name the topic of: {message}"), moods.run(f"Name the mood of: {message}")
    )
    result = await helper.run(f"Help this {felt.output} customer with a {named.output}: {message}")
    return kept(ticket, result)


async def approve(ticket: str) -> str:
    messages = ModelMessagesTypeAdapter.validate_json(Path(f"{ticket}.json").read_bytes())
    calls = [part.tool_call_id for part in messages[-1].parts if part.part_kind == "tool-call"]
    decision = DeferredToolResults(approvals=dict.fromkeys(calls, True))
    return kept(ticket, await helper.run(message_history=messages, deferred_tool_results=decision))


def kept(ticket: str, result: AgentRunResult[str | DeferredToolRequests]) -> str:
    Path(f"{ticket}.json").write_bytes(result.all_messages_json())
    if isinstance(result.output, DeferredToolRequests):
        return f"waits for approval: {[(call.tool_name, call.args) for call in result.output.approvals]}"
    return result.output


if __name__ == "__main__":
    action = start(*sys.argv[2:4]) if sys.argv[1] == "start" else approve(sys.argv[2])
    print(asyncio.run(action))
