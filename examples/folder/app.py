"""Folder: one child turn for each file of a folder, all in parallel, and one table after the last result.

    python -m examples.folder.app FOLDER

The suspended parent uses no process. It resumes exactly once, whichever process dies. An unreadable file becomes a row of
the table and does not affect the others.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from heliograph import Context, Delegation, Heliograph, Step

SHELF = 40  # files for one turn: a large folder is divided among several, so that no turn has too many children

app = Heliograph("folder")


@app.agent(on_request=True)
def counter(ctx: Context) -> dict[str, int]:
    """Count one file."""
    text = Path(ctx.task["path"]).read_text(encoding="utf-8")
    return {"lines": len(text.splitlines()), "words": len(text.split())}


@app.agent(on_request=True)
async def shelf(ctx: Context) -> list[dict[str, Any]]:
    """Fork over some files, and join their rows."""
    results = await ctx.delegates([Delegation("counter", {"path": path}) for path in ctx.task["paths"]])
    rows = []
    for path, result in zip(ctx.task["paths"], results, strict=True):
        failed = {"error": (result.error or {}).get("message", result.status)}
        rows.append({"file": Path(path).name, **(result.output if isinstance(result.output, dict) else failed)})
    return rows


@app.agent(activate_on=["workflow:start"], updates="table")
async def clerk(ctx: Context) -> dict[str, Any]:
    """Fork over the shelves, join, and add up."""
    # the folder may change between two runs of this function, so a step lists it once
    paths = await ctx.step(Step("list-files", effect="pure"), _files, str(ctx.document["folder"]))
    shelves = [paths[first : first + SHELF] for first in range(0, len(paths), SHELF)]
    joined = await ctx.delegates([Delegation("shelf", {"paths": some}) for some in shelves])
    rows = [
        row for result in joined if isinstance(result.output, list) for row in result.output if isinstance(row, dict)
    ]
    good = [row for row in rows if "error" not in row]
    return {
        "rows": rows, "lines": sum(row["lines"] for row in good), "words": sum(row["words"] for row in good),
        "failed": len(paths) - len(good),
    }  # fmt: skip


def _files(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).iterdir() if path.is_file())


async def main(folder: str) -> None:
    table = (await app.run({"folder": folder})).state["table"]
    for row in table["rows"]:
        print(f"{row.get('lines', '-'):>8} {row.get('words', '-'):>8}  {row['file']}  {row.get('error', '')}")
    print(f"{table['lines']:>8} {table['words']:>8}  in all, {table['failed']} failed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
