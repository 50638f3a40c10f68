"""Fork and join: many children at once, their outcomes, and options for all of them together."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from heliograph import Call, CallResult, Context, Delegation, Heliograph, Signal
from heliograph.errors import InvalidInput
from heliograph.testing import eventually
from tests.runtime.kit import SOON_SECONDS, START, Rig, names, one, until


def forking(fork: Callable[[Context], Any], **options: Any) -> Heliograph:
    """A parent that runs `fork`, and a child that follows its task: it fails, hangs, fails once, or returns the task."""
    app = Heliograph("forking", reducers={"failed": lambda old, new: [*(old or []), new]})

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        return [_plain(result) for result in await fork(ctx)]

    @app.agent(on_request=True, **options)
    async def child(ctx: Context) -> Any:
        if ctx.task == "fail":
            raise ValueError("no")
        if ctx.task == "fail first" and "-again-" not in ctx.signal.payload["id"]:
            raise ValueError("not yet")
        if ctx.task == "hang":
            await asyncio.Event().wait()
        return ctx.task

    return app


def _plain(result: CallResult) -> list[Any]:
    return [result.call_id, result.status, result.output if result.is_good else (result.error or {}).get("code")]


def payload_of(signal: Signal) -> Any:
    return signal.payload


def children(*tasks: Any) -> list[Delegation]:
    return [Delegation("child", task) for task in tasks]


async def ran(rig: Rig, app: Heliograph) -> Any:
    """The results that the parent received, from a worker with quick sweeps."""
    run_id = await rig.start(app)
    async with rig.serving(app):
        return one(await rig.ended(run_id), "workflow:end")["state"]["seen"]


@pytest.mark.proves("L0-38", "CTL-28")
async def test_fork_results_are_in_request_order_with_their_outcomes(rig: Rig) -> None:
    delegations = [*children(1, "fail", 3), Delegation("child", "hang", timeout=0.2)]
    assert await ran(rig, forking(lambda ctx: ctx.delegates(delegations))) == [
        ["c1", "success", 1], ["c2", "failed", "ACTION_FAILED"], ["c3", "success", 3], ["c4", "timeout", "DELEGATION_TIMEOUT"],
    ]  # fmt: skip


@pytest.mark.proves("L0-38", "CTL-35")
async def test_first_failure_ends_the_wait_and_stops_the_other_children(rig: Rig) -> None:
    app = forking(lambda ctx: ctx.delegates(children("hang", "fail", "hang"), fail_fast=True))
    seen = await ran(rig, app)
    assert [each[:2] for each in seen] == [["c1", "canceled"], ["c2", "failed"], ["c3", "canceled"]]
    parent = await rig.turn_of("parent")
    waits = {wait.call_id: wait for wait in await rig.runtime.reader.waits(parent.turn_id)}
    cards = await rig.runtime.reader.call_cards(list(waits.values()), "tool.result")
    assert cards[parent.turn_id, "c1"]["error"]["first_failed_call"] == "c2"
    outcomes = {turn.parent_call_id: turn.outcome for turn in await rig.runtime.reader.turns() if turn.agent == "child"}
    assert outcomes == {"c1": "canceled", "c2": "failed", "c3": "canceled"}


@pytest.mark.more
@pytest.mark.proves("CTL-29", "CTL-76")
async def test_overall_deadline_abandons_unfinished_children_and_keeps_the_others(rig: Rig) -> None:
    app = forking(lambda ctx: ctx.delegates(children(1, "hang", 3), timeout=2.0, retries=2))
    assert await ran(rig, app) == [["c1", "success", 1], ["c2", "timeout", "DELEGATION_TIMEOUT"], ["c3", "success", 3]]
    assert len([turn for turn in await rig.runtime.reader.turns() if turn.agent == "child"]) == 3  # no child is retried


@pytest.mark.more
@pytest.mark.proves("L0-38")
async def test_failed_children_are_retried_as_often_as_the_parent_requests(rig: Rig) -> None:
    app = forking(lambda ctx: ctx.delegates(children(1, "fail first", "fail"), retries=2))
    assert await ran(rig, app) == [
        ["c1", "success", 1], ["c2-again-1", "success", "fail first"], ["c3-again-2", "failed", "ACTION_FAILED"],
    ]  # fmt: skip


@pytest.mark.more
async def test_children_canceled_by_fail_fast_are_retried_with_the_failed_one(rig: Rig) -> None:
    app = forking(lambda ctx: ctx.delegates(children("fail first", "fail first"), fail_fast=True, retries=1))
    assert [each[1:] for each in await ran(rig, app)] == [["success", "fail first"], ["success", "fail first"]]


@pytest.mark.proves("CTL-24")
async def test_delegation_has_its_own_priority_or_that_of_its_agent(rig: Rig) -> None:
    delegations = [Delegation("child", 1, priority="critical"), Delegation("child", 2)]
    result = await rig.run(forking(lambda ctx: ctx.delegates(delegations), priority="low"))
    priorities = [
        s.payload["priority"] for s in result.signals if s.name == "delegation" and isinstance(s.payload, dict)
    ]
    assert priorities == ["critical", "low"]
    query = "select parent_call_id, priority from heliograph.agent_turns where run_id = $1 and depth = 1 order by 1"
    assert [tuple(row) for row in await rig.fetch(query, result.run_id)] == [("c1", 3), ("c2", 0)]


@pytest.mark.proves("CTL-26", "CTL-27", "G-22")
async def test_follower_receives_the_statuses_of_a_delegation_in_order(rig: Rig) -> None:
    app = Heliograph("watched")
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("child")

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        begun.set()
        await may_end.wait()
        return "done"

    run_id = await rig.start(app)
    async with rig.serving(app):
        await asyncio.wait_for(begun.wait(), 20)
        assert (
            payload_of(await eventually(rig, run_id, "delegation_response", within_seconds=SOON_SECONDS))["status"]
            == "in_progress"
        )
        (row,) = await rig.client.delegations((await rig.turn_of("parent")).turn_id)
        assert (row.agent, row.status, row.outcome) == ("child", "in_progress", None)
        may_end.set()
        signals = await rig.ended(run_id)
    delegation_signals = [s for s in signals if s.name in ("delegation", "delegation_response")]
    assert [payload_of(s)["status"] for s in delegation_signals] == ["accepted", "in_progress", "completed"]
    assert {payload_of(s)["task_id"] for s in delegation_signals} == {row.task_id}
    assert payload_of(delegation_signals[-1])["result"] == {"text": "done"}
    (row,) = await rig.client.delegations((await rig.turn_of("parent")).turn_id)
    assert (row.status, row.outcome) == ("completed", "success")


@pytest.mark.proves("CTL-26")
async def test_start_of_a_child_is_emitted_once_across_workers(rig: Rig) -> None:
    app, began = Heliograph("handed"), list[int]()

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("child", instance="desk")

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        began.append(ctx.attempt)
        if len(began) < 3:
            await asyncio.Event().wait()
        return "done"

    async def is_emitted() -> bool:
        return "delegation_response" in names(await rig.runtime.reader.all_signals(run_id))

    run_id = await rig.start(app)
    for worker in (1, 2):  # each hands back in the middle
        async with rig.serving(app, grace_seconds=0.01, lease_seconds=3600):
            await until(lambda: len(began) == worker)  # noqa: B023
            await until(is_emitted)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    responses = [s.payload for s in signals if s.name == "delegation_response" and isinstance(s.payload, dict)]
    assert ([p["status"] for p in responses], began) == (["in_progress", "completed"], [1, 1, 1])


async def test_next_worker_emits_the_start_of_a_child_that_the_first_worker_did_not_emit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, lost, call = Heliograph("lost"), list[Any](), rig.runtime.world.call

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("child")

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        return ctx.attempt

    async def loses(name: str, *args: object) -> Any:
        """The worker that claims the child first dies."""
        answer = await call(name, *args)
        if name == "claim" and not lost and (taken := [row for row in answer if row["agent"] == "child"]):
            lost.extend(taken)
            return [row for row in answer if row not in taken]
        return answer

    monkeypatch.setattr(rig.runtime.world, "call", loses)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=0.3):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"seen": 2}
    responses = [s.payload for s in signals if s.name == "delegation_response" and isinstance(s.payload, dict)]
    assert [p["status"] for p in responses] == ["in_progress", "completed"]


async def test_start_of_a_short_child_is_emitted_with_its_end_without_an_extra_call(rig: Rig) -> None:
    result = await rig.run(forking(lambda ctx: ctx.delegates(children(1))))
    signal_names = names(result.signals)
    assert signal_names.count("delegation_response") == 2
    assert signal_names.index("delegation_response") < signal_names.index("agent:completed")


@pytest.mark.proves("S11", "L0-64")
async def test_children_beyond_a_full_queue_are_dispatched_later(rig: Rig) -> None:
    app = Heliograph("crowd")
    await rig.runtime.world.call("set_limits", rig.runtime.settings.project, {"queue_max": 3})
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def fork(ctx: Context) -> Any:
        return [r.status for r in await ctx.delegates([Delegation("child", n, instance="desk") for n in range(3)])]

    @app.agent(activate_on=START, updates="first")
    async def first(ctx: Context) -> Any:
        return await fork(ctx)

    @app.agent(activate_on=START, updates="second")
    async def second(ctx: Context) -> Any:
        await has_begun.wait()  # by now two children of the other wait for the desk
        return await fork(ctx)

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        has_begun.set()
        await may_end.wait()

    async def is_deferred() -> bool:
        return (await rig.turn_of("second")).defer_count == 1

    run_id = await rig.start(app)
    async with rig.serving(app):
        await until(is_deferred)
        may_end.set()
        end = one(await rig.ended(run_id), "workflow:end")
    assert end["state"] == {"first": ["success"] * 3, "second": ["success"] * 3}


async def test_fork_wider_than_the_project_allows_fails_with_a_clear_message(rig: Rig) -> None:
    await rig.runtime.world.call("set_limits", rig.runtime.settings.project, {"fan_out_max": 2})
    result = await rig.run(forking(lambda ctx: ctx.delegates(children(1, 2, 3))))
    error = one(result.signals, "agent:failed")["error"]
    assert (error["code"], error["message"]) == (
        "RESOURCE_EXHAUSTED", "the turn may not wait: the turn would start 3 children at once; at most 2 are allowed: "
        "start them in several rounds, "
        "or raise the limit with helio db limits fan_out_max=NUMBER",
    )  # fmt: skip
    assert [turn.agent for turn in await rig.runtime.reader.turns()] == ["parent"]


@pytest.mark.parametrize(
    ("options", "code"),
    [({"retries": -1}, "out_of_range"), ({"retries": True}, "out_of_range"), ({"timeout": "soon"}, "out_of_range")],
)
async def test_invalid_fork_options_are_rejected_at_the_call(rig: Rig, options: Any, code: str) -> None:
    refused: list[str] = []

    async def fork(ctx: Context) -> list[CallResult]:
        try:
            return await ctx.delegates(children(1), **options)
        except InvalidInput as error:
            refused.append(error.code)
            return []

    await rig.run(forking(fork))
    assert refused == [code]


async def test_unknown_priority_is_rejected(rig: Rig) -> None:
    result = await rig.run(forking(lambda ctx: ctx.delegates([Delegation("child", priority="urgent")])))
    assert (
        "priority must be one of low, normal, high, critical" in one(result.signals, "agent:failed")["error"]["message"]
    )


# ── Calls for which a budget has nothing left ──


@pytest.mark.more
@pytest.mark.parametrize("is_first", [True, False], ids=["refused first", "refused last"])
async def test_call_rejected_by_a_budget_fails_fast_and_starts_no_other_call(rig: Rig, is_first: bool) -> None:
    app, happened = Heliograph("dear"), list[Any]()
    refused, other = Call("search", call_id="no"), children(1)[0]

    @app.agent(activate_on=START, updates="seen", budget={"tool_calls": 1})
    async def parent(ctx: Context) -> Any:
        await ctx.step("pay", happened.append, "paid")
        results = await ctx.calls([refused, other] if is_first else [other, refused], fail_fast=True)
        try:  # a run of the function that comes later finds the same
            await ctx.pause(0.01)
        finally:
            seen.append([[r.call_id, r.status, (r.error or {}).get("first_failed_call", r.error)] for r in results])
        return [[r.call_id, r.status] for r in results]

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        happened.append(ctx.task)

    seen: list[Any] = []
    result = await rig.run(app)
    assert result.outcome == "success"
    assert happened == ["paid"]
    assert seen[0] == seen[-1]
    by_id = {call_id: results for call_id, *results in seen[0]}
    assert by_id.pop("no")[0] == "failed"
    assert list(by_id.values()) == [["canceled", "no"]]
    assert not {"delegation", "delegation_response"} & set(names(result.signals))
    assert await rig.client.take_commands(["search"]) == []


async def test_affordable_calls_do_not_start_beside_an_unaffordable_call_of_a_fail_fast_step(rig: Rig) -> None:
    app = Heliograph("dear")

    @app.agent(activate_on=START, updates="seen", budget={"tool_calls": 1})
    async def parent(ctx: Context) -> Any:
        return [_plain(r) for r in await ctx.calls([Call("a"), *children(1), Call("b")], fail_fast=True)]

    app.agent(name="child", on_request=True)(lambda ctx: ctx.task)
    result = await rig.run(app)
    assert result.state["seen"] == [
        ["c1", "canceled", "CANCELED"], ["c2", "canceled", "CANCELED"], ["c3", "failed", "BUDGET_EXCEEDED"],
    ]  # fmt: skip
    assert await rig.client.take_commands(["a", "b"]) == []
    parent_turn = await rig.turn_of("parent")
    assert {b.kind: (b.used, b.remaining) for b in await rig.client.budgets(parent_turn.turn_id)} == {
        "tool_calls": (0, 1)
    }


async def test_affordable_calls_start_beside_an_unaffordable_call_without_fail_fast(rig: Rig) -> None:
    app = Heliograph("dear")

    @app.agent(activate_on=START, updates="seen", budget={"tool_calls": 0})
    async def parent(ctx: Context) -> Any:
        return [_plain(r) for r in await ctx.calls([Call("a"), *children(1)])]

    app.agent(name="child", on_request=True)(lambda ctx: ctx.task)
    result = await rig.run(app)
    assert result.state["seen"] == [["c1", "failed", "BUDGET_EXCEEDED"], ["c2", "success", 1]]
