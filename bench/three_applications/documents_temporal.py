"""Thirty documents are summarized, eight at a time, and joined into a digest.

python documents_temporal.py worker
python documents_temporal.py d1 documents.json
"""

import asyncio
import json
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from bench.three_applications.stubs_pydantic_ai import digest, summary

summarizer = Agent(summary, name="summarizer", capabilities=[TemporalDurability()])
editor = Agent(digest, name="editor", capabilities=[TemporalDurability()])


@workflow.defn
class Documents(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [summarizer, editor]

    @workflow.run
    async def run(self, documents: list[str]) -> str:
        slots = asyncio.Semaphore(8)

        async def summarize(text: str) -> str:
            async with slots:
                return (await summarizer.run(f"Summarize: {text}")).output

        texts = await asyncio.gather(*(summarize(text) for text in documents))
        return (await editor.run(f"Write a digest of: {texts}")).output


async def main(name: str, file: str = "") -> None:
    client = await Client.connect("localhost:7233", plugins=[PydanticAIPlugin()])
    if name == "worker":
        await Worker(client, task_queue="documents", workflows=[Documents]).run()
    else:
        documents = json.loads(Path(file).read_text())["documents"]
        again = WorkflowIDConflictPolicy.USE_EXISTING
        print(
            await client.execute_workflow(
                Documents.run, documents, id=name, task_queue="documents", id_conflict_policy=again
            )
        )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
