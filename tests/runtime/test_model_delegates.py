"""Options of a model that delegates: a priority, a deadline, and the context of its child."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.agents import define_agent
from heliograph.errors import InvalidInput
from heliograph.models import ScriptedModel
from tests.runtime.kit import START, Rig, one, until
from tests.runtime.loop_kit import call, payloads, results

TOOL = "delegate_to_clerk"


def crew(lead: ScriptedModel, *, contexts: Any = None, hangs: bool = False, **options: Any) -> Heliograph:
    """A lead with a model, and its clerk, which returns its task and everything that it has read."""
    app = Heliograph("crew")
    app.prompt_agent("lead", "Lead.", model=lead, activate_on=START, updates="out", agents=["clerk"], contexts=contexts)

    @app.agent(on_request=True, **options)
    async def clerk(ctx: Context) -> Any:
        if hangs:
            await asyncio.Event().wait()
        return [ctx.task, [card.content for card in await ctx.context()]]

    return app


@pytest.mark.proves("CTL-24")
async def test_model_chooses_priority_and_context_within_its_permissions(rig: Rig) -> None:
    await rig.client.boxes.put([{"kind": "note", "content": "be kind"}], box_id="handbook-3")
    arguments = {"task": "greet", "priority": "high", "deadline": 30, "context": "handbook"}
    lead = ScriptedModel([[call(TOOL, arguments, "x1"), call(TOOL, {"task": "part", "priority": None}, "x2")], "done"])
    app = crew(lead, contexts={"handbook": "handbook-3", "prices": "prices-1"}, priority="high", ttl_seconds=600)
    result = await rig.run(app)
    assert result.state["out"] == "done"
    assert results(lead) == [["greet", ["be kind"]], ["part", []]]
    assert [p["priority"] for p in payloads(result.signals, "delegation")] == ["high", "high"]
    query = "select deadline - opened_at from heliograph.wait_overview where kind = 'child' and run_id = $1 order by position"
    deadlines = [row[0] and row[0].total_seconds() for row in await rig.fetch(query, result.run_id)]
    assert deadlines == [30, None]


async def test_permitted_delegation_options_are_in_the_schema_of_the_tool(rig: Rig) -> None:
    lead = ScriptedModel(["done"])
    await rig.run(crew(lead, contexts={"handbook": "handbook-3"}, priority="low", ttl_seconds=600))
    [tool] = lead.requests[-1].tools
    properties: Any = tool.parameters["properties"]
    assert tool.parameters["required"] == ["task"]
    assert properties["priority"]["enum"] == ["low", "normal"]  # up to that of the delegating turn
    assert (properties["deadline"]["minimum"], properties["deadline"]["maximum"]) == (1, 600)
    assert properties["context"]["enum"] == ["handbook"]
    bare = ScriptedModel(["done"])
    await rig.run(crew(bare))
    assert set(bare.requests[-1].tools[0].parameters["properties"]) == {"task", "priority", "deadline"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        ({"priority": "critical"}, f"the priority of {TOOL} must be one of low, normal, not critical"),
        ({"priority": ["low"]}, f"the priority of {TOOL} must be one of low, normal, not ['low']"),
        ({"deadline": 0}, f"the deadline of {TOOL} must be a number of seconds from 1 to 60, not 0"),
        ({"deadline": 61}, f"the deadline of {TOOL} must be a number of seconds from 1 to 60, not 61"),
        ({"deadline": "soon"}, f"the deadline of {TOOL} must be a number of seconds from 1 to 60, not soon"),
        ({"deadline": True}, f"the deadline of {TOOL} must be a number of seconds from 1 to 60, not True"),
        ({"context": "handbook-3"}, f"the context of {TOOL} must be one of handbook, not handbook-3"),
        ({"timeout": 5, "instance": "x"}, f"{TOOL} takes task, priority, deadline, context; not timeout, instance"),
    ],
)
async def test_forbidden_delegation_returns_an_error_and_starts_no_child(
    rig: Rig, arguments: Any, error_text: str
) -> None:
    lead = ScriptedModel([call(TOOL, {"task": "greet", **arguments}), "done"])
    result = await rig.run(crew(lead, contexts={"handbook": "handbook-3"}, ttl_seconds=60))
    assert (result.outcome, results(lead)) == ("success", [("error", error_text)])
    assert payloads(result.signals, "delegation") == []


@pytest.mark.more
@pytest.mark.proves("CTL-29")
async def test_child_past_the_deadline_of_its_model_is_abandoned_and_the_turn_continues(rig: Rig) -> None:
    lead = ScriptedModel([call(TOOL, {"task": "wait", "deadline": 1}), "without it, then"])
    app = crew(lead, hangs=True)
    run_id = await rig.start(app)
    async with rig.serving(app):
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == "without it, then"
    [(kind, message)] = results(lead)
    assert (kind, message.startswith("DELEGATION_TIMEOUT: ")) == ("error", True)
    assert (await rig.turn_of("clerk")).outcome == "canceled"


async def test_contexts_function_may_offer_the_box_of_its_turn(rig: Rig) -> None:
    box = await rig.client.boxes.put([{"kind": "note", "content": "mine"}])
    app = Heliograph("crew")
    arguments = {"task": "read", "context": "own"}
    lead = ScriptedModel([call(TOOL, arguments), "done"] * 2)

    @app.agent(activate_on=START)
    async def opener(ctx: Context) -> None:
        await ctx.delegate("lead", "with", context_box_id=box)
        await ctx.delegate("lead", "without")

    app.prompt_agent("lead", "Lead.", model=lead, on_request=True, agents=["clerk"],
                     contexts=lambda ctx: {"own": ctx.context_box_id})  # fmt: skip

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> Any:
        return [card.content for card in await ctx.context()]

    await rig.run(app)
    assert results(lead, 1) == [["mine"]]
    assert results(lead, 3) == [("error", f"{TOOL} takes task, priority, deadline; not context")]


async def test_recorded_delegation_is_replayed_by_a_version_that_forbids_it(rig: Rig) -> None:
    may_end = asyncio.Event()

    def version(lead: ScriptedModel, **options: Any) -> Heliograph:
        app = Heliograph("crew")
        app.prompt_agent("lead", "Lead.", model=lead, activate_on=START, updates="out", agents=["clerk"])

        @app.agent(on_request=True, **options)
        async def clerk(ctx: Context) -> Any:
            await may_end.wait()
            return ctx.task

        return app

    async def is_suspended() -> bool:
        return (await rig.turn_of("lead")).status == "suspended"

    arguments = {"task": "greet", "priority": "critical", "deadline": 500}
    before = version(ScriptedModel([call(TOOL, arguments), "never"]), priority="critical")
    run_id = await rig.start(before)
    async with rig.serving(before, grace_seconds=0.01):
        await until(is_suspended)
    may_end.set()
    lead = ScriptedModel([call(TOOL, arguments), "done"], per_turn=True)
    after = version(lead, ttl_seconds=60)
    async with rig.serving(after):
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == "done"
    assert results(lead) == ["greet"]


async def test_invalid_context_boxes_fail_the_turn_with_the_reason(rig: Rig) -> None:
    result = await rig.run(crew(ScriptedModel(["never"]), contexts=lambda _ctx: {"own": 5}))
    assert (
        "agent lead: contexts has 5, and a box id is 1 to 200"
        in one(result.signals, "agent:failed")["error"]["message"]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agents": ["b"], "contexts": ["handbook"]}, "contexts must be an object of names and box ids"),
        ({"agents": ["b"], "contexts": {"a name": "box"}}, "contexts has 'a name', and a name is 1 to 64"),
        ({"agents": ["b"], "contexts": {"name": ""}}, "contexts has '', and a box id is 1 to 200"),
        ({"agents": ["b"], "contexts": lambda _a, _b: {}}, "contexts is called with the context"),
        ({"contexts": {"name": "box"}}, "contexts are context boxes for delegations; list the other agents in agents"),
    ],
)
def test_invalid_contexts_are_rejected_at_the_definition(options: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        define_agent("a", prompt="Lead.", on_request=True, **options)
    assert message in caught.value.message
