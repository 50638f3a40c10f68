from __future__ import annotations

from typing import Any

import pytest

from heliograph.ledger.kernel import KERNEL
from tests.kernel.kit import TARGET, Connect, Item, Kernel, draft, ending, fill, message, run_item, saying

LATER_SECONDS = 10_000.0


async def live(kernel: Kernel, seen: list[Any]) -> None:
    """One life with everything in it; each step adds what it saw."""
    seen.append(await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"}, ttl_seconds=100))
    yielded = await kernel.claim_one()
    seen.append(yielded)
    seen.append(await kernel.append(yielded, draft("note", yielded["activation_id"], owed=True)))
    seen.append(await kernel.enqueue("run_a", "critic", "turn_c"))
    seen.append(await kernel.enqueue("run_a", "critic", "turn_d"))
    seen.append(await kernel.finish(yielded))
    seen.append(await kernel.finish(yielded, version=(await kernel.run("run_a"))["version"]))
    kernel.wait(200)
    seen.append(await kernel.sweep("expired"))
    seen.append(await kernel.owed())
    seen.append(await kernel.call("sweep_bells", 1.0))
    seen.append([event["key"] for event in await kernel.call("read_outbox", 10)])


@pytest.mark.proves("S1")
async def test_two_projects_with_the_same_ids_live_the_same_lives(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    other.project += " too"
    mine: list[Any] = []
    theirs: list[Any] = []
    await live(kernel, mine)
    before = await kernel.everything()
    await live(other, theirs)
    assert mine == theirs
    assert await kernel.everything() == before
    assert await other.checks() == []


async def calls_with(owner: Kernel, claimed: Item) -> list[tuple[str, tuple[Any, ...], Any]]:
    """Every function with ids of `owner`'s project, and what it answers to a project that has none of these."""
    run, turn = claimed["run_id"], claimed["turn_id"]
    version = (await owner.run(run))["version"]
    outbox_ids = [row["outbox_id"] for row in await owner.rows("outbox")]
    note = draft("note", claimed["activation_id"])
    swept: Item = {"ended": [], "targets": []}
    return [
        ("enqueue", ([message(run, "critic", "turn_new")],),
         [{"turn_id": "turn_new", "outcome": "unknown_agent", "targets": []}]),
        ("claim", ([TARGET], "thief", 1000, 30.0), []),
        ("renew", ([saying(claimed)], 30.0), [{"turn_id": turn, "outcome": "stale"}]),
        ("append", ([saying(claimed, note)],), [{"turn_id": turn, "outcome": "stale"}]),
        ("finish", ([ending(claimed, version=version)],), [{"turn_id": turn, "outcome": "stale", "targets": []}]),
        ("react", ([{"run_id": run, "signals": [], "reaction": {"version": version}}],),
         [{"run_id": run, "outcome": "conflict", "targets": []}]),
        ("sweep_leases", (1000,), {"recovered": [], **swept}),
        ("sweep_expired", (1000,), swept),
        ("sweep_queued", (1000,), {"targets": []}),
        ("sweep_bells", (0.0,), []),
        ("sweep_owed", ([TARGET], 1000), []),
        ("read_outbox", (1000,), []),
        ("mark_published", (outbox_ids,), 0),
        ("doctor", (True,), []),
        ("start_runs", ([run_item(run, ["stranger"], {turn: "stranger"})],),
         [{"run_id": run, "outcome": "started", "targets": [TARGET]}]),
    ]  # fmt: skip


@pytest.mark.proves("S1")
async def test_no_function_reaches_into_another_project_by_its_ids(kernel: Kernel) -> None:
    await fill(kernel)
    (claimed,) = [  # what the owner of turn_3 holds
        {"agent_id": row["agent_id"], "agent": row["agent_name"], "run_id": row["run_id"], "turn_id": "turn_3",
         "epoch": row["turn_epoch"], "activation_id": "sig_run_a_2", "run": {"version": 0}}
        for row in await kernel.rows("agent_state_head", "*", "status = 'running'")
    ]  # fmt: skip
    asked = await calls_with(kernel, claimed)
    assert {function for function, _, _ in asked} == set(KERNEL)
    before = await kernel.everything()
    kernel.wait(LATER_SECONDS)  # all that kernel has would be due by now
    for function, args, expected in asked:
        assert await kernel.call(function, *args, project=f"{kernel.project} stranger") == expected, function
    assert await kernel.everything() == before
    kernel.is_corrupted = False


@pytest.mark.proves("S1")
async def test_every_public_function_takes_the_project_first_and_pins_its_search_path(kernel: Kernel) -> None:
    rows = await kernel.connection.fetch(
        "select proname, proargnames[1] as first, proargtypes[0]::regtype::text as type, proconfig, prosecdef from pg_proc"
        " where pronamespace = 'heliograph'::regnamespace and proname !~ '^_' order by proname"
    )
    assert {row["proname"] for row in rows} == set(KERNEL)
    assert [row["proname"] for row in rows if (row["first"], row["type"]) != ("p_project", "text")] == []
    assert [row["proname"] for row in rows if "search_path=pg_catalog" not in row["proconfig"]] == []
    assert [row["proname"] for row in rows if row["prosecdef"]] == []


@pytest.mark.proves("S1")
async def test_every_view_shows_the_project_of_its_rows(kernel: Kernel) -> None:
    await fill(kernel)
    views = await kernel.connection.fetch("select viewname from pg_views where schemaname = 'heliograph' order by 1")
    for (view,) in views:
        assert await kernel.rows(view) != []
        stranger = f"select count(*) from heliograph.{view} where project_id = $1"
        assert await kernel.connection.fetchval(stranger, "nobody's") == 0


async def test_python_and_sql_agree_on_the_arguments_of_each_function(kernel: Kernel) -> None:
    for name, function in KERNEL.items():
        types = await kernel.connection.fetchval(
            "select array(select format_type(t, null) from unnest(proargtypes) with ordinality a (t, n) order by n)"
            "  from pg_proc where oid = $1::text::regproc", f"heliograph.{name}"
        )  # fmt: skip
        spelled = {"float8": "double precision"}
        times = ["timestamp with time zone"] * function.takes_now
        assert types == [spelled.get(cast, cast) for cast in function.casts] + times
