"""Delegations by name and by id, with a task and a context, as the log and the tables have them."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph
from tests.runtime.kit import START, Rig, one, until


def delegating(target: Any, payload: Any = None, **options: Any) -> Heliograph:
    """A parent that delegates to `target`, and a clerk that returns its payload."""
    app = Heliograph("delegating")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate(target(ctx) if callable(target) else target, payload, **options)

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> Any:
        return {"task": ctx.task, "context": ctx.task_context}

    return app


async def agent_ids(rig: Rig, agent: str) -> set[str]:
    rows = await rig.fetch(
        "select t.agent_id from heliograph.agent_turns t where t.agent_id like $1 and project_id = $2",
        f"%/{agent}%", rig.runtime.settings.project,
    )  # fmt: skip
    return {row["agent_id"] for row in rows}


@pytest.mark.proves("CTL-20")
@pytest.mark.parametrize("suffix", ["", "/desk"])
async def test_delegation_by_agent_id_goes_to_that_agent(rig: Rig, suffix: str) -> None:
    result = await rig.run(delegating(lambda ctx: f"{ctx.run_id}/clerk{suffix}", "greet"))
    assert result.state["seen"]["task"] == "greet"
    assert await agent_ids(rig, "clerk") == {f"{result.run_id}/clerk{suffix}"}
    assert one(result.signals, "delegation")["target_agent"] == "clerk"


@pytest.mark.proves("CTL-20")
async def test_delegation_by_name_goes_to_an_instance_of_its_own(rig: Rig) -> None:
    result = await rig.run(delegating("clerk", "greet"))
    parent = await rig.turn_of("parent")
    assert await agent_ids(rig, "clerk") == {f"{result.run_id}/clerk/{parent.turn_id}-c1"}
    assert one(result.signals, "delegation")["target_agent"] == "clerk"


@pytest.mark.proves("CTL-20")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("clark", "application delegating has no agent clark; did you mean clerk?"),
        ("run_other/clerk", "agent run_other/clerk belongs to another run; this is run run_mine"),
        ("run_mine/clark", "application delegating has no agent clark; did you mean clerk?"),
        ("run_mine/clerk/a/b", "an instance must be 1 to 64 ASCII letters"),
        (None, "the agent of a delegation must be a name or an id, not None"),
        (7, "the agent of a delegation must be a name or an id, not 7"),
    ],
)
async def test_delegation_to_no_agent_fails_the_turn_and_is_not_logged(rig: Rig, target: Any, message: str) -> None:
    result = await rig.run(delegating(target, "greet"), run_id="run_mine")
    assert message in one(result.signals, "agent:failed")["error"]["message"]
    assert [signal for signal in result.signals if signal.name == "delegation"] == []
    assert [turn.agent for turn in await rig.runtime.reader.turns()] == ["parent"]


@pytest.mark.proves("CTL-22")
async def test_context_of_a_delegation_is_logged_and_delivered_to_its_target(rig: Rig) -> None:
    context = {"pr_number": 123, "repository": "acme/backend", "labels": ["urgent"]}
    result = await rig.run(delegating("clerk", {"action": "review"}, context=context))
    assert result.state["seen"] == {"task": {"action": "review"}, "context": context}
    logged = one(result.signals, "delegation")
    assert (logged["task"], logged["context"]) == ({"action": "review"}, context)


@pytest.mark.proves("CTL-22")
async def test_delegation_without_a_context_has_an_empty_one(rig: Rig) -> None:
    result = await rig.run(delegating("clerk", "greet"))
    assert result.state["seen"] == {"task": "greet", "context": {}}
    assert "context" not in one(result.signals, "delegation")


@pytest.mark.proves("CTL-22")
@pytest.mark.parametrize(
    ("context", "message"),
    [(["no", "object"], "the context of a delegation must be an object, not ['no', 'object']"),
     ({"text": "x" * 40_000}, "the limit is 65536")],
)  # fmt: skip
async def test_context_that_is_no_object_or_too_large_is_rejected(rig: Rig, context: Any, message: str) -> None:
    result = await rig.run(delegating("clerk", "y" * 40_000, context=context))
    assert message in one(result.signals, "agent:failed")["error"]["message"]
    assert [signal for signal in result.signals if signal.name == "delegation"] == []


@pytest.mark.proves("CTL-22")
async def test_each_delegation_of_a_fork_has_its_own_context(rig: Rig) -> None:
    app = Heliograph("forks")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        results = await ctx.delegates([Delegation("clerk", n, context={"n": n}) for n in range(3)])
        return [result.output for result in results]

    app.agent(name="clerk", on_request=True)(lambda ctx: [ctx.task, ctx.task_context])
    assert (await rig.run(app)).state["seen"] == [[n, {"n": n}] for n in range(3)]


@pytest.mark.proves("CTL-25")
async def test_response_names_the_target_the_task_its_status_result_and_duration(rig: Rig) -> None:
    app = Heliograph("asks")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("clerk", "greet")

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> Any:
        return {"greeted": await ctx.call("door", trusted=True)}

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("door")
        is_later = "select opened_at + interval '30 ms' < now() from heliograph.wait_overview where kind = 'child' and run_id = $1"
        await until(lambda: _value(rig, is_later, run_id))  # the child takes at least so long
        await command.report(result="yes")
        signals = await rig.ended(run_id)
    (response,) = [s for s in signals if s.name == "delegation_response" and s.payload["status"] != "in_progress"]  # type: ignore[call-overload,index]
    turn = await rig.turn_of("clerk")
    payload: Any = response.payload
    assert {key: payload[key] for key in ("target_agent", "task_id", "status")} == {
        "target_agent": "clerk", "task_id": turn.turn_id, "status": "completed",
    }  # fmt: skip
    (card,) = [card for card in await rig.runtime.reader.cards(turn.turn_id) if card.kind == "task.deliverable"]
    assert payload["result"] == card.content == {"fields": [{"name": "greeted", "value": "yes"}]}
    waited = "select floor(extract(epoch from resolved_at - opened_at) * 1000)::int from heliograph.wait_overview"
    assert payload["duration_ms"] == await _value(rig, f"{waited} where kind = 'child' and run_id = $1", run_id) >= 30


async def _value(rig: Rig, query: str, run_id: str) -> Any:
    return (await rig.fetch(query, run_id))[0][0]
