"""Thirty documents are summarized, eight at a time, and joined into a digest.

python documents_pydantic_ai.py d1 documents.json
"""

import asyncio
import json
import sys
from pathlib import Path

from pydantic_ai import Agent

from bench.three_applications.stubs_pydantic_ai import digest, summary

summarizer = Agent(summary)
editor = Agent(digest)


async def main(name: str, documents: list[str]) -> str:
    slots, folder = asyncio.Semaphore(8), Path(name)
    folder.mkdir(exist_ok=True)

    async def summarize(index: int, text: str) -> str:
        file = folder / f"{index}.txt"  # a second call continues after a crash
        if not file.exists():
            async with slots:
                result = await summarizer.run(f"Summarize: {text}")
            unfinished = file.with_suffix(".part")
            unfinished.write_text(result.output)
            unfinished.rename(file)
        return file.read_text()

    texts = await asyncio.gather(*(summarize(index, text) for index, text in enumerate(documents)))
    return (await editor.run(f"Write a digest of: {texts}")).output


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())["documents"])))
