"""Shared by the tests of plans: tools, and an application whose agent executes the steps of a plan."""

from __future__ import annotations

from typing import Any

from heliograph import Context, Heliograph, tool
from heliograph.agents import Agent
from heliograph.errors import ToolFailed
from heliograph.models import ScriptedModel
from heliograph.phases import PhaseContext, Plan
from tests.runtime.kit import START

CALLS: list[Any] = []


@tool(effect="pure")
def search(query: str) -> str:
    """Search the archive."""
    CALLS.append(query)
    return f"found {query}"


@tool(effect="idempotent")
def fetch(page: int) -> str:
    """Fetch a page."""
    CALLS.append(page)
    if len(CALLS) < page:
        raise ToolFailed("busy", error={"recoverable": True})
    return f"page {page}"


def charge(amount: int) -> str:
    """Charge a card."""
    CALLS.append(amount)
    raise RuntimeError("declined")


def executing(*steps: Any, tools: Any = (search, fetch, charge), **options: Any) -> Heliograph:
    """An application whose agent executes these steps, with an agent `clerk` and a model that echoes."""
    app = Heliograph("planned")

    class Planner(Agent):
        def plan(self, _ctx: PhaseContext) -> Plan:
            return Plan(list(steps))

    model = ScriptedModel(lambda request: f"read {len(request.messages)}: {request.prompt}")
    app.agent(name="worker", activate_on=START, updates="out", tools=tools, agents=["clerk"], model=model, **options)(
        Planner
    )

    @app.agent(name="clerk", on_request=True)
    async def clerk(ctx: Context) -> Any:
        return {"filed": ctx.task}

    return app
