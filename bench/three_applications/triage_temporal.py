"""Support triage: two classifiers in parallel, then a clerk whose refunds above 100 wait for a person.

python triage_temporal.py worker
python triage_temporal.py start t1 "My tea is broken"
python triage_temporal.py approve t1
"""

import asyncio
import sys

from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from bench.three_applications.stubs_pydantic_ai import clerk, mood, topic

topics = Agent(topic, name="topics", capabilities=[TemporalDurability()])
moods = Agent(mood, name="moods", capabilities=[TemporalDurability()])
helper = Agent(clerk, name="helper", output_type=[str, DeferredToolRequests], capabilities=[TemporalDurability()])


@helper.tool_plain
async def find_order(message: str) -> str:
    """Find the order that a message is about."""
    return "A-17"


@helper.tool
async def refund(ctx: RunContext[object], order: str, amount: int) -> str:
    """Pay a customer back."""
    if amount > 100 and not ctx.tool_call_approved:
        raise ApprovalRequired
    return f"paid back {amount} for {order}"


@workflow.defn
class Triage(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [topics, moods, helper]

    def __init__(self) -> None:
        self.approved = False

    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.run
    async def run(self, message: str) -> str:
        named, felt = await asyncio.gather(
            topics.run(f"Name the topic of: {message}"), moods.run(f"Name the mood of: {message}")
        )
        result = await helper.run(f"Help this {felt.output} customer with a {named.output}: {message}")
        while isinstance(result.output, DeferredToolRequests):
            await workflow.wait_condition(lambda: self.approved)
            calls = [call.tool_call_id for call in result.output.approvals]
            decision = DeferredToolResults(approvals=dict.fromkeys(calls, True))
            result = await helper.run(message_history=result.all_messages(), deferred_tool_results=decision)
        return result.output


async def main(action: str, ticket: str = "", message: str = "") -> None:
    client = await Client.connect("localhost:7233", plugins=[PydanticAIPlugin()])
    if action == "worker":
        await Worker(client, task_queue="triage", workflows=[Triage]).run()
    elif action == "start":
        await client.start_workflow(Triage.run, message, id=ticket, task_queue="triage")
    else:
        handle = client.get_workflow_handle(ticket)
        await handle.signal(Triage.approve)
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
