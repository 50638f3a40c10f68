"""Steps of a plan that use the outputs of earlier ones, and the output type of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph, tool
from heliograph.agents import Agent
from heliograph.definitions.step_references import check_references, literal, resolved
from heliograph.errors import ToolFailed
from heliograph.models import ModelReply, ModelRequest, ScriptedModel
from heliograph.phases import DelegationStep, Lifecycle, PhaseContext, Plan, ToolStep
from tests.runtime.kit import START, Rig, one

SUMMARY = {"$step": 1, "path": "/pages/1/a~1b"}


@tool(effect="pure")
def look(query: Any) -> Any:
    """Look something up."""
    if query == "nothing":
        raise ToolFailed("no index")
    return {"query": query, "pages": [{}, {"a/b": {"$step": 1}}]}


def executing(*steps: Any, **options: Any) -> Heliograph:
    app = Heliograph("referring")

    class Planner(Agent):
        def plan(self, _ctx: PhaseContext) -> Plan:
            return Plan(list(steps))

    app.agent(name="worker", activate_on=START, updates="out", tools=[look], agents=["clerk"], **options)(Planner)

    @app.agent(name="clerk", on_request=True)
    async def clerk(ctx: Context) -> Any:
        await ctx.pause(0.01)
        return ctx.task

    return app


@pytest.mark.more
@pytest.mark.proves("LC-31")
async def test_step_receives_the_outputs_to_which_it_refers_once_evaluated(rig: Rig) -> None:
    steps = [ToolStep("look", {"query": "x"}), DelegationStep("clerk", {"found": SUMMARY, "all": [{"$step": 1}]}),
             ToolStep("look", {"query": {"$step": 2, "path": "/found"}})]  # fmt: skip
    state = (await rig.run(executing(*steps))).state
    assert state["out"]["query"] == {"$step": 1}  # an output that looks like a reference is data


@pytest.mark.proves("LC-31")
async def test_literal_value_is_passed_without_a_search_for_references(rig: Rig) -> None:
    value = [{"$step": 1}, {"$literal": 2, "x": {"$step": 9}}]
    result = await rig.run(
        executing(ToolStep("look", {"query": "x"}), ToolStep("look", {"query": {"$literal": value}}))
    )
    assert result.state["out"]["query"] == value


@pytest.mark.parametrize(
    "value",
    [1, None, "x", {"a": [1]}, {"$step": 1}, {"a": [{"$step": "x"}]}, {"$literal": 1}, [{"$literal": {"$step": 0}}]],
)
def test_every_value_has_a_form_that_becomes_it_again(value: Any) -> None:
    escaped = literal(value)
    check_references(escaped, 1)
    assert resolved(escaped, []) == value
    assert (escaped is value) == ("$" not in str(value))


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ({"$step": 2}, "may refer to earlier steps (1 to 1)"),
        ({"$step": 0}, "may refer to earlier steps"),
        ({"$step": "1"}, "may refer to earlier steps"),
        ({"$step": True}, "may refer to earlier steps"),
        ({"$step": 1, "path": "pages"}, "its path must be a JSON pointer"),
        ({"$step": 1, "paths": ""}, "a reference has $step and path only"),
    ],
)
def test_invalid_reference_of_a_plan_is_rejected(reference: Any, problem: str) -> None:
    from heliograph.definitions.plan import plan_json
    from heliograph.errors import InvalidInput

    plan = Plan([ToolStep("look", {"query": "x"}), ToolStep("look", {"query": [reference]})])
    with pytest.raises(InvalidInput) as raised:
        plan_json(plan)
    assert raised.value.code == "invalid_reference"
    assert problem in raised.value.message


def test_value_without_references_is_unchanged() -> None:
    value: Any = {"a": [1, {"b": "$step"}], "path": "/x"}
    assert resolved(value, []) == value
    assert resolved({"$step": 1, "path": ""}, [("all",)]) == "all"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([ToolStep("look", {"query": "x"}), ToolStep("look", {"query": {"$step": 1, "path": "/sheets"}})],
         "step 2 of the plan (look) failed: the reference {'$step': 1, 'path': '/sheets'} of a plan is invalid: the output has no "
         "sheets there; it has the keys pages, query"),
        ([ToolStep("look", {"query": "x"}), DelegationStep("clerk", {"$step": 1, "path": "/pages/2"})],
         "the output has no 2 there; it has 2 items"),
    ],
    ids=["key", "index"],
)  # fmt: skip
async def test_reference_to_a_missing_part_fails_its_step(rig: Rig, steps: Any, message: str) -> None:
    error = one((await rig.run(executing(*steps))).signals, "agent:failed")["error"]
    assert error["code"] == "ACTION_FAILED"
    assert message in error["message"]


@pytest.mark.proves("LC-31")
async def test_reference_to_a_skipped_step_fails_its_own_step(rig: Rig) -> None:
    steps = [
        ToolStep("look", {"query": "nothing"}),
        ToolStep("look", {"query": {"$step": 1}}),
        ToolStep("look", {"query": "x"}),
    ]
    result = await rig.run(executing(*steps, lifecycle=Lifecycle(on_tool_error="skip")))
    actions = one(result.signals, "action_complete")["actions"]
    assert [each["success"] for each in actions] == [False, False, True]
    assert "step 1 failed, so it has no output" in actions[1]["error"]["message"]


@pytest.mark.proves("LC-31")
@pytest.mark.parametrize("ends_with_model", [True, False])
async def test_executed_plan_of_a_prompt_agent_has_its_output_type(rig: Rig, ends_with_model: bool) -> None:
    requests = list[ModelRequest]()

    def reply(request: ModelRequest) -> Any:
        requests.append(request)
        if request.prompt.startswith("Make a plan"):
            last: Any = (
                {"kind": "model", "prompt": "count"}
                if ends_with_model
                else {"kind": "tool_call", "tool": "look", "arguments": {"query": "x"}}
            )
            return ModelReply("", output={"steps": [{"kind": "model", "prompt": "think"}, last]})
        return ModelReply("", output={"pages": 2}) if request.output is not None else "thought"

    app = Heliograph("typed")
    app.prompt_agent("worker", "Count.", model=ScriptedModel(reply), output=dict[str, int], tools=[look], plan=True,
                     updates="out", activate_on=START)  # fmt: skip
    result = await rig.run(app)
    if ends_with_model:
        assert result.state == {"out": {"pages": 2}}
        assert [request.output for request in requests[1:]] == [None, dict[str, int]]
    else:
        error = one(result.signals, "agent:failed")["error"]
        assert "the output of the plan does not match the output of agent worker: pages: " in error["message"]
