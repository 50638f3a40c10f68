"""A chat that remembers and continues after a restart; its replies arrive whole: `python chat_temporal.py anna`.

python chat_temporal.py worker
"""

import asyncio
import sys

from pydantic_ai import Agent, ModelMessage
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from bench.three_applications.stubs_pydantic_ai import chatter

assistant = Agent(chatter, name="assistant", instructions="Be brief.", capabilities=[TemporalDurability()])


@workflow.defn
class Chat(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [assistant]

    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []
        self.turn = asyncio.Lock()

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)  # a session has no end

    @workflow.update
    async def send(self, text: str) -> str:
        async with self.turn:
            result = await assistant.run(text, message_history=self.messages)
            self.messages = result.all_messages()
            return result.output


async def main(session: str) -> None:
    client = await Client.connect("localhost:7233", plugins=[PydanticAIPlugin()])
    if session == "worker":
        await Worker(client, task_queue="chat", workflows=[Chat]).run()
        return
    again = WorkflowIDConflictPolicy.USE_EXISTING
    handle = await client.start_workflow(Chat.run, id=session, task_queue="chat", id_conflict_policy=again)
    for line in sys.stdin:
        print(await handle.execute_update(Chat.send, line.strip()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
