"""A rejected call is never made later in its turn, even if it would be allowed by then."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph, external_tool, tool
from heliograph.models import ScriptedModel
from tests.runtime.kit import START, Rig, names, one, until
from tests.runtime.loop_kit import call, results

LOOK = external_tool("look", "Look.", {"type": "object"})
REPEATABLE = ("error", "it was rejected and did not run; it is valid now, so call it again")


def version(model: ScriptedModel, happened: list[Any], *, pays: type | None = None, **options: Any) -> Heliograph:
    """An agent that looks, and pays where it can; one version of it."""
    app = Heliograph("shop")

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> Any:
        happened.append(ctx.task)

    tools = [LOOK]
    if pays is not None:

        def pay(amount: Any) -> None:
            """Pay."""
            happened.append(amount)

        pay.__annotations__["amount"] = pays
        tools.append(tool(pay))
    app.prompt_agent("buyer", "Buy.", model=model, activate_on=START, updates="out", tools=tools, agents=["clerk"],
                     **options)  # fmt: skip
    return app


CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "a box": (call("delegate_to_clerk", {"task": "read", "context": "draft"}), {}, {"contexts": {"draft": "box-1"}}),
    "a tool": (call("pay", {"amount": 1}), {}, {"pays": int}),
    "its arguments": (call("pay", {"amount": "one"}), {"pays": int}, {"pays": str}),
    "a person": (call("ask_human", {"question": "may I?"}), {}, {"asks_human": True}),
    "its result": (call("submit_result", {"total": 1}), {}, {"result_fields": [{"name": "total", "type": "number"}]}),
}  # fmt: skip


@pytest.mark.proves("L0-100", "K13")
@pytest.mark.parametrize("case", CASES)
async def test_rejected_call_is_not_made_by_a_version_that_allows_it(rig: Rig, case: str) -> None:
    refused, old, new = CASES[case]
    happened: list[Any] = []
    ends = [call("submit_result", {"total": 2})] if case == "its result" else "done"
    first, second = (ScriptedModel([[refused], call("look"), ends], per_turn=True) for _ in range(2))
    before, after = version(first, happened, **old), version(second, happened, **new)

    async def is_suspended() -> bool:
        return (await rig.turn_of("buyer")).status == "suspended"

    run_id = await rig.start(before)
    async with rig.serving(before, grace_seconds=0.01):
        await until(is_suspended)
    async with rig.serving(after):
        [command] = await rig.taken("look")
        await command.report(result="seen")
        ended = await rig.ended(run_id)
    assert one(ended, "workflow:end")["state"]["out"] == ({"total": 2} if case == "its result" else "done")
    assert results(second) == [REPEATABLE, "seen"]
    assert happened == []
    assert "delegation" not in names(ended)


async def test_box_named_later_is_passed_on_only_to_a_repeated_request(rig: Rig) -> None:
    box = await rig.client.boxes.put([{"kind": "note", "content": "mine"}])
    delegation, happened = call("delegate_to_clerk", {"task": "read", "context": "draft"}), list[Any]()
    model = ScriptedModel([[delegation], call("look"), [delegation], "done"])
    boxes: dict[str, str] = {}
    app = version(model, happened, contexts=lambda _ctx: boxes)
    async with rig.serving(app):
        run_id = await rig.start(app)
        [command] = await rig.taken("look")
        assert results(model)[0][0] == "error"
        boxes["draft"] = box
        await command.report(result="seen")
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == "done"
    assert results(model) == [REPEATABLE, "seen", None]
    assert happened == ["read"]


async def test_box_named_while_its_owner_runs_is_not_passed_on(rig: Rig) -> None:
    box = await rig.client.boxes.put([{"kind": "note", "content": "mine"}])
    delegation, happened, runs = (
        call("delegate_to_clerk", {"task": "read", "context": "draft"}),
        list[Any](),
        list[Any](),
    )
    model = ScriptedModel([[delegation], [call("look"), call("look")], "done"])

    def contexts(_: Context) -> dict[str, str]:
        runs.append(None)
        return {} if len(runs) == 1 else {"draft": box}

    app = version(model, happened, contexts=contexts, budget={"tool_calls": 1})
    async with rig.serving(app):
        run_id = await rig.start(app)
        [command] = await rig.taken("look")  # the budget rejects the other one, so the agent runs once more
        assert len(runs) == 2
        await command.report(result="seen")
        ended = await rig.ended(run_id)
    assert one(ended, "workflow:end")["state"]["out"] == "done"
    assert happened == []
    assert "delegation" not in names(ended)
