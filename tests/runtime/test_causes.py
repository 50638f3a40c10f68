"""Causes of real runs: over delegations, over messages between runs, and the same answer from the client and from SQL."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from heliograph import Client, Context, Heliograph
from heliograph.errors import InvalidInput, NotFound
from tests.runtime.kit import START, Rig


def desk() -> Heliograph:
    """A boss delegates to a clerk and emits work:done; a guarded archivist subscribes to it, and a printer to a name that nobody emits."""
    app = Heliograph("desk")

    @app.agent(activate_on=START, emits=["work:done"], updates="answer")
    async def boss(ctx: Context) -> Any:
        return await ctx.delegate("clerk", "count")

    @app.agent(on_request=True)
    def clerk(ctx: Context) -> int:
        return 7

    @app.agent(activate_on=["work:done"], when=lambda state: state["answer"] > 9)
    def archivist(ctx: Context) -> None: ...

    @app.agent(activate_on=["work:don"])
    def printer(ctx: Context) -> None: ...

    return app


@pytest.mark.proves("SIG-60", "SIG-61")
async def test_chain_of_a_delegated_turn_leads_over_its_delegation_to_the_root(rig: Rig) -> None:
    result = await rig.run(desk(), {})
    client = Client.on(rig.runtime)
    done = next(s for s in result.signals if s.name == "agent:completed" and s.agent == "clerk")
    answer = await client.why(done.id)
    assert [(link["name"], link.get("source", {}).get("agent")) for link in answer["chain"]] == [
        ("agent:completed", "clerk"), ("agent:activated", "clerk"), ("delegation", "boss"), ("agent:activated", "boss"), ("workflow:start", None),
    ]  # fmt: skip
    boss, clerk = await rig.turn_of("boss"), await rig.turn_of("clerk")
    assert answer["chain"][0]["turn"] == {"turn_id": clerk.turn_id, "agent": "clerk", "outcome": "success", "attempts": 0,
                                          "parent_turn_id": boss.turn_id, "parent_call_id": "c1"}  # fmt: skip


async def test_client_and_sql_return_one_result(rig: Rig) -> None:
    app = desk()
    result = await rig.run(app, {})
    client, project = Client.on(rig.runtime), rig.runtime.ledger.project
    last, run_id = result.signals[-1].id, result.run_id
    for answer, call, *args in (
        (await client.why(last), "why($1, $2, 200)", last),
        (await client.tree(run_id, limit=5), "read_tree($1, $2, 0, 5)", run_id),
        (await client.graph(last, after=3), "read_graph($1, $2, 3, 200)", last),
    ):
        [row] = await rig.fetch(f"select heliograph.{call}::text as answer", project, *args)
        assert json.loads(row["answer"]) == answer
    facts = await client.why_not(run_id, "archivist")
    [finding] = facts["findings"]
    assert (finding["code"], finding["name"], finding["reads"]) == (
        "guard_false",
        "work:done",
        [{"key": "answer", "value": 7}],
    )
    [missing] = (await client.why_not(run_id, "printer", app))["findings"]
    assert (missing["code"], missing["nearest"][0]) == ("never_emitted", "work:done")


@pytest.mark.proves("SIG-60", "SIG-61")
async def test_join_of_two_turns_names_the_signals_that_they_emitted(rig: Rig) -> None:
    app = Heliograph("album")
    app.agent(name="one", activate_on=START, emits=["photo:taken"])(lambda ctx: None)
    app.agent(name="two", activate_on=["photo:taken"], emits=["noise:made", "title:found"])(lambda ctx: None)
    app.agent(name="all", activate_when_all=["photo:*", "title:found"], when=lambda state: True)(lambda ctx: None)
    result = await rig.run(app, {})
    activated = next(s for s in result.signals if s.name == "agent:activated" and s.agent == "all")
    answer = await Client.on(rig.runtime).why(activated.id)
    ids = {s.name: s.id for s in result.signals}
    assert [(each["pattern"], each["id"], each["signal"]["name"]) for each in answer["chain"][0]["joined"]] == [
        ("photo:*", ids["photo:taken"], "photo:taken"), ("title:found", ids["title:found"], "title:found"),
    ]  # fmt: skip
    assert answer["chain"][0]["payload"]["guard"]["verdict"] is True
    assert answer["chain"][1]["id"] == ids["title:found"]


@pytest.mark.parametrize(
    "identifier", ["sig_\0_1", "sig_x_" + "9" * 5000, "sig_" + "x" * 300_000 + "_1", "sig_x_1\ud800", "nothing"]
)
async def test_hostile_signal_id_is_unknown(rig: Rig, identifier: str) -> None:
    client = Client.on(rig.runtime)
    with pytest.raises(NotFound) as caught:
        await client.why(identifier)
    assert caught.value.code == "unknown_signal"
    assert len(caught.value.message) < 600
    with pytest.raises((NotFound, InvalidInput)):
        await client.graph(identifier)


async def test_wrong_arguments_are_rejected_with_their_place(rig: Rig) -> None:
    client, wrong = Client.on(rig.runtime), "out_of_range"
    for call, code in (
        (client.why("sig_x_1", limit=0), wrong), (client.tree("x", after=-1), wrong), (client.tree("x", limit=1001), wrong),
        (client.why(5), "invalid_id"), (client.why_not("a b", "x"), "invalid_id"), (client.graph("x" * 201), "too_long"),  # type: ignore[arg-type]
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            await call
        assert caught.value.code == code


@pytest.mark.proves("SIG-61")
async def test_message_of_another_run_leads_back_to_its_sender(rig: Rig) -> None:
    app, has_read = Heliograph("letters"), asyncio.Event()

    @app.agent(activate_on=START, when=lambda state: "to" in state)
    async def writer(ctx: Context) -> None:
        await Client.on(rig.runtime).enqueue(
            str(ctx.document["to"]), "reader", turn_id="turn_letter", parent_turn_id=ctx.turn_id
        )

    @app.agent(activate_on=["user:message"])
    async def reader(ctx: Context) -> None:
        has_read.set()

    @app.agent(activate_on=START, when=lambda state: "to" not in state)
    async def host(ctx: Context) -> None:
        await has_read.wait()

    host_run = await rig.start(app, {}, run_id="host")
    with pytest.raises(NotFound, match="there is no turn turn_nobody"):
        await Client.on(rig.runtime).enqueue(host_run, "reader", parent_turn_id="turn_nobody")
    async with rig.serving(app):
        guest = await rig.start(app, {"to": host_run})
        await rig.ended(guest)
        log = await rig.ended(host_run)
    read = next(s for s in log if s.name == "agent:completed" and s.agent == "reader")
    answer = await Client.on(rig.runtime).why(read.id)
    assert [(link["run_id"], link["name"]) for link in answer["chain"]] == [
        (host_run, "agent:completed"), (host_run, "agent:activated"), (host_run, "user:message"), (guest, "agent:activated"),
        (guest, "workflow:start"),
    ]  # fmt: skip
    assert answer["chain"][3]["payload"]["guard"] == {"verdict": True, "reads": [{"key": "to", "value": host_run}]}
