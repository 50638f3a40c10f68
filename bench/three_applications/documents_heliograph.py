"""Thirty documents are summarized, eight at a time, and joined into a digest.

helio run documents_heliograph.py:app --run-id d1 --state @documents.json
"""

from typing import TypedDict

from bench.three_applications.stubs_heliograph import digest, summary
from heliograph import Context, Heliograph


class Work(TypedDict, total=False):
    documents: list[str]
    summaries: list[str]
    digest: str


app = Heliograph("documents", state=Work)
app.prompt_agent("summarizer", "Summarize: {task}", model=summary, on_request=True)


@app.agent(activate_on=["workflow:start"], emits=["documents:summarized"], updates="summaries")
async def reader(ctx: Context[Work]) -> list[str]:
    return await ctx.map("summarizer", ctx.state["documents"], limit=8)


app.prompt_agent(
    "editor",
    "Write a digest of: {state.summaries}",
    model=digest,
    activate_on=["documents:summarized"],
    updates="digest",
)
