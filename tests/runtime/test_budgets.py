"""Budgets of agents: reservations before each call, settlements after it, and turns at the limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Call, Context, Delegation, Heliograph, external_tool
from heliograph.errors import BudgetExceeded, DelegationFailed, HarnessError, InvalidInput
from heliograph.models import FunctionHarness, ModelReply, ModelRequest, ScriptedModel
from heliograph.turn.token_estimate import input_tokens_max
from tests.runtime.kit import START, Rig, names, one, until
from tests.runtime.loop_kit import agent, call, payloads, results

done: list[str] = []


def buy(item: str) -> str:
    """Buy something."""
    done.append(item)
    return f"bought {item}"


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def budgets(rig: Rig) -> dict[tuple[str, str], tuple[int, int, int]]:
    """{(agent, kind): (used, reserved, over)} of all budgets of the project."""
    rows = await rig.fetch(
        "select t.agent, b.kind, b.used, b.reserved, b.overspent from heliograph.budget_overview b"
        " join heliograph.turn_overview t using (project_id, turn_id) where b.project_id = $1", rig.runtime.settings.project,
    )  # fmt: skip
    return {(row["agent"], row["kind"]): (row["used"], row["reserved"], row["overspent"]) for row in rows}


def replying(text: str = "", *tools: Any, tokens: tuple[int, int] = (10, 5), **fields: Any) -> ModelReply:
    return ModelReply(text, input_tokens=tokens[0], output_tokens=tokens[1], tool_calls=tools, **fields)


@pytest.mark.proves("S12")
async def test_turn_counts_the_usage_of_its_model_and_its_tools(rig: Rig) -> None:
    model = ScriptedModel(
        [replying("let me", call("buy", {"item": "tea"}), cost_usd=0.25), replying("done", cost_usd=0.125)]
    )
    limits = {"tokens": 20_000, "usd": 2.5, "model_calls": 10, "tool_calls": 40}
    result = await rig.run(agent(model, [buy], budget=limits, price={"input": 1.0, "output": 2.0}))
    assert (result.outcome, result.state["out"], done) == ("success", "done", ["tea"])
    assert await budgets(rig) == {
        ("worker", "tokens"): (30, 0, 0), ("worker", "micros"): (375_000, 0, 0), ("worker", "model_calls"): (2, 0, 0),
        ("worker", "tool_calls"): (1, 0, 0),
    }  # fmt: skip


async def test_turn_without_tools_is_settled(rig: Rig) -> None:
    result = await rig.run(agent(ScriptedModel([replying("done")]), budget={"tokens": 9000, "model_calls": 1}))
    assert result.state["out"] == "done"
    assert await budgets(rig) == {("worker", "tokens"): (15, 0, 0), ("worker", "model_calls"): (1, 0, 0)}


@pytest.mark.proves("S12")
async def test_turn_at_its_budget_ends_as_partial_with_its_last_text_and_the_reason(rig: Rig) -> None:
    model = ScriptedModel([replying("first half", call("buy", {"item": "tea"})), replying("never heard")])
    result = await rig.run(agent(model, [buy], budget={"model_calls": 1}))
    assert (result.outcome, result.state["out"], len(model.requests)) == ("partial", "first half", 1)
    turn = await rig.turn_of("worker")
    assert turn.outcome == "partial"
    limit = next(p for p in payloads(result.signals, "terminated") if p["status"] == "partial")["limit"]
    assert limit["code"] == "BUDGET_EXCEEDED"
    assert limit["message"] == (
        f"the budget of turn {turn.turn_id} has 0 of 1 model_calls left; this call needs 1: start the turn with a larger budget"
    )
    assert limit["budget"] | {"turn_id": ""} == {
        "turn_id": "", "kind": "model_calls", "amount_max": 1, "used": 1, "reserved": 0, "overspent": 0,
    }  # fmt: skip
    [card] = [c for c in await rig.runtime.reader.cards(turn.turn_id) if c.card_id == turn.deliverable_card_id]
    assert (card.content["text"], card.content["limit"]) == ("first half", limit)


@pytest.mark.proves("S12")
async def test_exhausted_tool_budget_returns_an_error_for_each_call_and_the_turn_continues(rig: Rig) -> None:
    purchases = [call("buy", {"item": item}, item) for item in ("a", "b", "c")]
    model = ScriptedModel([purchases, "enough"])
    result = await rig.run(agent(model, [buy], budget={"tool_calls": 2}))
    assert (result.outcome, result.state["out"], len(done)) == ("success", "enough", 2)
    messages = results(model)
    [(kind, message)] = [each for each in messages if isinstance(each, tuple)]
    assert kind == "error"
    assert "BUDGET_EXCEEDED" in message
    assert "has 0 of 2 tool_calls left" in message
    assert [p["status"] for p in payloads(result.signals, "tool:result")].count("failed") == 1
    assert await budgets(rig) == {("worker", "tool_calls"): (2, 0, 0)}


async def test_remote_tools_are_called_within_the_budget(rig: Rig) -> None:
    search = external_tool("search", "Find.", {"type": "object"})
    model = ScriptedModel([[call("search", {"n": n}, f"x{n}") for n in range(3)], "enough"])
    app = Heliograph("looping")
    app.prompt_agent(
        "worker", "Work.", model=model, activate_on=START, updates="out", tools=[search], budget={"tool_calls": 2}
    )
    async with rig.serving(app):
        run_id = await rig.start(app)
        for command in await rig.taken("search", count=2):
            await command.report(result=command.arguments["n"])
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == "enough"
    messages = results(model)
    assert messages[:2] == [0, 1]
    assert "has 0 of 2 tool_calls left" in messages[2][1] or "has 2 of 2" in messages[2][1]
    assert await budgets(rig) == {("worker", "tool_calls"): (2, 0, 0)}


@pytest.mark.proves("S12")
async def test_budget_error_is_raised_at_the_call_and_replayed_there(
    rig: Rig,
) -> None:
    app, seen = Heliograph("steps"), list[str]()

    @app.agent(activate_on=START, updates="out", budget={"tool_calls": 2})
    async def worker(ctx: Context) -> list[Any]:
        found: list[Any] = []
        for n in range(3):
            try:
                found.append(await ctx.step(f"step{n}", buy, str(n)))
            except BudgetExceeded as error:
                found.append([error.code, error.budget["kind"], error.tool])
        await ctx.pause(0.01)  # the turn is left, and its function runs again from its start
        try:
            await ctx.call("search")
        except BudgetExceeded as error:
            seen.append(error.call_id)
        [result] = await ctx.calls([Call("search")])
        return [*found, result.status, (result.error or {})["code"]]

    async with rig.serving(app):
        run_id = await rig.start(app)
        out = one(await rig.ended(run_id), "workflow:end")["state"]["out"]
    assert out == ["bought 0", "bought 1", ["BUDGET_EXCEEDED", "tool_calls", "step2"], "failed", "BUDGET_EXCEEDED"]
    assert (done, set(seen)) == (["0", "1"], {"c5"})
    assert await budgets(rig) == {("worker", "tool_calls"): (2, 0, 0)}


async def test_unhandled_budget_error_fails_the_turn_with_its_code(rig: Rig) -> None:
    app = Heliograph("steps")

    @app.agent(activate_on=START, budget={"tool_calls": 0})
    async def worker(ctx: Context) -> None:
        await ctx.step("buy", buy, "tea")

    result = await rig.run(app)
    assert result.outcome == "failed"
    assert one(result.signals, "agent:failed")["error"]["code"] == "BUDGET_EXCEEDED"
    assert done == []


# ── Trees of turns ────────────────────────────────────────────────────────────────────────────


def family(model: Any, *, budget: Any = None, of_child: Any = None, own: Any = None) -> Heliograph:
    app = Heliograph("family")

    @app.agent(activate_on=START, updates="out", budget=budget)
    async def parent(ctx: Context) -> Any:
        return [
            [r.status, r.output] for r in await ctx.delegates([Delegation("child", n, budget=own) for n in range(3)])
        ]

    app.prompt_agent("child", "Work.", model=model, on_request=True, budget=of_child)
    return app


@pytest.mark.proves("S12")
async def test_budget_of_a_turn_applies_to_its_descendants(rig: Rig) -> None:
    result = await rig.run(family(ScriptedModel([replying("done")] * 3), budget={"model_calls": 2, "tokens": 90_000}))
    assert sorted(result.state["out"]) == [["partial", ""], ["success", "done"], ["success", "done"]]
    assert await budgets(rig) == {("parent", "model_calls"): (2, 0, 0), ("parent", "tokens"): (30, 0, 0)}
    assert [t.outcome for t in await rig.runtime.reader.turns() if t.agent == "child"].count("partial") == 1


async def test_delegation_may_allow_less_than_the_agent_itself(rig: Rig) -> None:
    app = family(ScriptedModel([replying("done")]), of_child={"model_calls": 5, "tokens": 9000}, own={"model_calls": 0})
    result = await rig.run(app)
    assert result.state["out"] == [["partial", ""]] * 3
    limits = {p["limit"]["budget"]["amount_max"] for p in payloads(result.signals, "terminated") if "limit" in p}
    assert limits == {0}


async def test_delegation_with_an_invalid_budget_is_rejected_at_the_call(rig: Rig) -> None:
    app = Heliograph("family")

    @app.agent(activate_on=START, updates="out")
    async def parent(ctx: Context) -> Any:
        try:
            await ctx.delegate("parent", budget={"hours": 5})
        except InvalidInput as error:
            return error.code

    assert (await rig.run(app)).state["out"] == "unknown_field"


async def test_message_brings_the_budget_of_its_turn(rig: Rig) -> None:
    app = Heliograph("messages")

    @app.agent(activate_on=START)
    async def writer(ctx: Context) -> None:
        await ctx.call("wait")

    app.prompt_agent("child", "Work.", model=ScriptedModel([replying("done")]), on_request=True)
    async with rig.serving(app):
        run_id = await rig.start(app)
        turn_id = await rig.client.enqueue(run_id, "child", budget={"model_calls": 0, "tool_calls": 7})
        assert (await rig.turn_of("child", "done")).outcome == "partial"
        limits = {b.kind: b.amount_max for b in await rig.client.budgets(turn_id)}
        assert limits == {"model_calls": 0, "tool_calls": 7}
        with pytest.raises(InvalidInput, match="usd must be a number from 0"):
            await rig.client.enqueue(run_id, "child", budget={"usd": -1})
        [command] = await rig.taken("wait")
        await command.report(result=1)
        await rig.ended(run_id)


async def test_context_reports_the_remaining_budget_with_those_of_its_ancestors(rig: Rig) -> None:
    app = Heliograph("family")

    @app.agent(activate_on=START, budget={"usd": 2, "tool_calls": 5})
    async def parent(ctx: Context) -> Any:
        await ctx.step("buy", buy, "tea")
        return await ctx.delegate("child")

    app.prompt_agent("child", "Work.", model=ScriptedModel([replying("done", cost_usd=0.5)]), on_request=True, budget={"tokens": 9000},
                     price={"input": 1, "output": 1})  # fmt: skip
    await rig.run(app)
    above, own = await rig.turn_of("parent"), await rig.turn_of("child")
    by_budget = {
        (b.turn_id, b.kind): (b.amount_max, b.used, b.remaining) for b in await rig.client.budgets(own.turn_id)
    }
    assert by_budget == {(above.turn_id, "usd"): (2, 0.5, 1.5), (above.turn_id, "tool_calls"): (5, 1, 4),
                    (own.turn_id, "tokens"): (9000, 15, 8985)}  # fmt: skip
    free = await rig.run(agent(ScriptedModel(["done"])))
    assert await rig.client.budgets((await rig.turn_of("worker")).turn_id) == []
    assert free.outcome == "success"


# ── Cost of a model call ──────────────────────────────────────────────────────────────────────


async def test_provider_receives_an_output_limit_within_the_remaining_budget(rig: Rig) -> None:
    model = ScriptedModel([replying("done", tokens=(10, 5))])
    result = await rig.run(agent(model, budget={"tokens": 300}))
    assert result.state["out"] == "done"
    bound = model.requests[-1].output_tokens_max
    assert bound is not None
    assert input_tokens_max(model.requests[-1]) + bound == 300


async def test_reply_truncated_at_the_output_limit_is_partial(rig: Rig) -> None:
    result = await rig.run(agent(ScriptedModel([replying("once upon a", is_cut=True)]), budget={"tokens": 300}))
    assert (await rig.turn_of("worker")).outcome == "partial"
    assert result.state["out"] == "once upon a"
    assert "was cut at 5 tokens" in payloads(result.signals, "terminated")[0]["limit"]["message"]


async def test_remaining_budget_too_small_to_be_useful_makes_no_model_call(rig: Rig) -> None:
    model = ScriptedModel([replying("done")])
    result = await rig.run(agent(model, budget={"tokens": 90}))
    assert (model.requests, (await rig.turn_of("worker")).outcome) == ([], "partial")
    assert "90 of 90 tokens left" in payloads(result.signals, "terminated")[0]["limit"]["message"]


@pytest.mark.proves("S12")
async def test_budget_reserved_by_others_is_awaited_and_then_used(rig: Rig) -> None:
    gate, bounds = asyncio.Event(), list[int | None]()

    async def answer(request: ModelRequest) -> ModelReply:
        bounds.append(request.output_tokens_max)
        await gate.wait()
        return replying("done")

    app = Heliograph("family")

    @app.agent(activate_on=START, updates="out", budget={"tokens": 350})
    async def parent(ctx: Context) -> Any:
        return [r.output for r in await ctx.delegates([Delegation("child", n) for n in range(3)])]

    app.prompt_agent("child", "Work.", model=FunctionHarness(answer), on_request=True, max_output_tokens=200)

    async def are_all_at_work() -> bool:
        turns = await rig.runtime.reader.turns(status="running")
        return len(turns) == 3 and bool(bounds)

    async with rig.serving(app):
        run_id = await rig.start(app)
        await until(are_all_at_work)
        gate.set()  # one call runs; the rest is too small for another until it is settled
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == ["done"] * 3
    assert bounds == [200] * 3
    assert await budgets(rig) == {("parent", "tokens"): (45, 0, 0)}


async def test_budget_in_money_without_a_price_is_rejected_with_the_setting(rig: Rig) -> None:
    result = await rig.run(agent(ScriptedModel([replying("done")]), budget={"usd": 1}))
    error = one(result.signals, "agent:failed")["error"]
    assert "the price of scripted is unknown: give agent worker a price" in error["message"]


async def test_cost_unreported_by_the_provider_is_counted_by_the_declared_price(rig: Rig) -> None:
    await rig.run(
        agent(
            ScriptedModel([replying("done", tokens=(1000, 200))]),
            budget={"usd": 1},
            price={"input": 3.0, "output": 15.0},
        )
    )
    assert await budgets(rig) == {("worker", "micros"): (6000, 0, 0)}


async def test_unreported_usage_of_a_model_counts_as_reserved(rig: Rig) -> None:
    def answer(request: ModelRequest) -> str:
        return "done"

    app = agent(FunctionHarness(answer), budget={"tokens": 50_000}, max_output_tokens=1000)
    await rig.run(app)
    [(used, reserved, over)] = (await budgets(rig)).values()
    assert (1000 < used < 1300, reserved, over) == (True, 0, 0)


async def test_usage_of_a_failed_attempt_is_counted_and_a_fallback_reserves_separately(rig: Rig) -> None:
    models = [
        FunctionHarness(_rejecting(0), model="refuses"), FunctionHarness(_rejecting(70), model="breaks off"), ScriptedModel([replying("done")]),
    ]  # fmt: skip
    result = await rig.run(agent(models, budget={"tokens": 50_000, "model_calls": 3}))
    assert result.state["out"] == "done"
    assert names(result.signals).count("harness:error") == 2
    assert await budgets(rig) == {("worker", "tokens"): (85, 0, 0), ("worker", "model_calls"): (3, 0, 0)}


@pytest.mark.more
async def test_deferred_turn_uses_its_remaining_budget_and_counts_each_attempt_once(rig: Rig, soon: None) -> None:
    busy = HarnessError("busy", recoverable=True, tokens=0)
    model = ScriptedModel([busy, busy, replying("", call("buy", {"item": "tea"})), replying("done")])
    result = await rig.run(agent(model, [buy], budget={"tokens": 50_000, "model_calls": 9}))
    assert (result.state["out"], done) == ("done", ["tea"])
    assert await budgets(rig) == {("worker", "tokens"): (30, 0, 0), ("worker", "model_calls"): (4, 0, 0)}


def _rejecting(tokens: int) -> Any:
    def answer(request: ModelRequest) -> str:
        raise HarnessError("no", recoverable=True, tokens=tokens)

    return answer


async def test_child_without_budget_fails_with_that_reason_at_its_parent(rig: Rig) -> None:
    app = Heliograph("family")

    @app.agent(activate_on=START, updates="out", budget={"tool_calls": 0})
    async def parent(ctx: Context) -> Any:
        try:
            await ctx.delegate("child")
        except DelegationFailed as error:
            return [error.error["code"], error.outcome]

    @app.agent(on_request=True)
    async def child(ctx: Context) -> None:
        await ctx.step("buy", buy, "tea")

    assert (await rig.run(app)).state["out"] == ["BUDGET_EXCEEDED", "failed"]
