from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from heliograph.ledger.kernel import KERNEL
from tests.kernel.filled import fill
from tests.kernel.kit import TARGET, Connect, Item, Kernel, draft, ending, message, run_item, stopping, turn_item
from tests.kernel.waits import TOKEN, activated, child, command, result, timer

Called = tuple[str, tuple[Any, ...], Any]  # a function, its arguments, its answer
LATER_SECONDS = 10_000.0
_UNKNOWN = {"outcome": "rejected", "code": "unknown_run"}
NOT_CALLED = {
    "report_result",
    "read_log",
    "read_recorded",
    "grant_project",
    "revoke_project",
    "forget_wire",
    "reset_rate",
    "grant_signals",
    "revoke_signals",
    "list_signal_grants",
}  # for other languages, views, operators


async def live(kernel: Kernel, seen: list[Any]) -> None:
    """Call every kind of transition once, and append each answer to `seen`."""
    await kernel.call("declare_wire", "postgres")
    seen.append(await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"}, ttl_seconds=100))
    yielded = await kernel.claim_one()
    seen.append(yielded)
    seen.append(await kernel.append(yielded, draft("note", yielded["activation_id"], is_pending=True)))
    seen.append(await kernel.enqueue("run_a", "critic", "turn_c"))
    seen.append(await kernel.enqueue("run_a", "critic", "turn_d"))
    seen.append(await kernel.finish(yielded))
    seen.append(await kernel.finish(yielded, version=(await kernel.run("run_a"))["version"]))
    seen.append(await kernel.call("put_boxes", [{"box_id": "context", "cards": [{"kind": "note", "content": 1}]}]))
    critic = await kernel.claim_one()
    calls = [command("c1"), timer("c2", 10), child("c3", "writer", "turn_e")]
    seen.append(await kernel.call("suspend", [turn_item(critic, *activated("writer"), calls=calls)]))
    seen.append(await kernel.call("report", [result("turn_c", "c1", token=TOKEN)]))
    seen.append(await kernel.stop("turn_e", actor="somebody"))
    kernel.wait(20)
    seen += [await kernel.sweep(kind) for kind in ("waits", "reports", "stops", "stuck", "leases", "queued")]
    kernel.wait(200)
    seen.append(await kernel.sweep("expired"))
    seen.append(await kernel.stop("run_a", "graceful"))
    seen.append(await kernel.pending())
    seen.append([card | {"position": 0} for card in await kernel.call("read_box", "context", 0, 10)])
    for function, *args in (("read_open_turns", TARGET, None, "", 0, 10), ("read_ended_turns", "run_a", 0, 10), ("read_conversation", "run_a", "writer", 1000, 10), ("why", "sig_run_a_9", 10), ("read_tree", "run_a", 0, 100), ("read_graph", "run_a", 0, 100),
                            ("why_not", "run_a", "critic", 0, 100)):  # fmt: skip
        seen.append(await kernel.call(function, *args))
    seen.append(await kernel.call("sweep_bells", 1.0))
    seen.append([event["key"] for event in await kernel.call("read_outbox", 10)])


@pytest.mark.proves("S1")
async def test_two_projects_with_the_same_ids_behave_alike(kernel: Kernel, beside: Connect) -> None:
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


async def calls_with(owner: Kernel, claimed: Item) -> list[Called]:
    """Every function with ids of `owner`'s project, and its answer to a project without these ids."""
    version = (await owner.run(claimed["run_id"]))["version"]
    keys = [row["key"] for row in await owner.rows("outbox", "key")]
    return [*_calls_of_turns(claimed, version), *_sweeps(), *_other_calls(claimed, keys, owner.now)]


def _calls_of_turns(claimed: Item, version: int) -> list[Called]:
    run, turn = claimed["run_id"], claimed["turn_id"]
    note = draft("note", claimed["activation_id"])
    stale: Item = {"turn_id": turn, "outcome": "stale"}
    return [
        ("enqueue", ([message(run, "critic", "turn_new")],),
         [{"turn_id": "turn_new", "outcome": "unknown_agent", "targets": []}]),
        ("claim", ([{"target": TARGET}], "thief", 1000, 30.0), []),
        ("fail_unclaimable", ([{"target": TARGET}],), {}),
        ("renew", ([turn_item(claimed)], 30.0), [stale]),
        ("append", ([turn_item(claimed, note)],), [stale]),
        ("begin_call", ([turn_item(claimed, call_id="c1", tool="x")],), [stale | {"call_id": "c1"}]),
        ("record_call", ([turn_item(claimed, call_id="c1", status="success")],), [stale | {"call_id": "c1"}]),
        ("suspend", ([turn_item(claimed, calls=[command("c9")])],), [stale | {"targets": []}]),
        ("defer", ([turn_item(claimed, delay_seconds=1)],), [stale | {"targets": []}]),
        ("release", ([turn_item(claimed)],), [stale | {"targets": []}]),
        ("finish", ([ending(claimed, version=version)],), [stale | {"targets": []}]),
        ("finish_and_claim", ([ending(claimed, version=version)], [{"target": TARGET}], "thief", 1000, 30.0),
         {"finished": [stale | {"targets": []}], "claimed": []}),
        ("stop", ([stopping(turn)],), [{"turn_id": turn, "outcome": "unknown_turn", "targets": []}]),
        ("stop_runs", ([stopping(run)],), [{"run_id": run, "outcome": "unknown_run"}]),
        ("report", ([result("turn_c", "c2", token=TOKEN)],),
         [{"turn_id": "turn_c", "call_id": "c2", "outcome": "unknown_turn", "targets": [], "resumed": False}]),
        ("report_and_claim", ([result("turn_c", "c2", token=TOKEN)], [{"target": TARGET}], "thief", 1000, 30.0),
         {"reported": [{"turn_id": "turn_c", "call_id": "c2", "outcome": "unknown_turn", "targets": [], "resumed": False}],
          "claimed": []}),
        ("take_commands", (["search"], 1000, 1.0), []),
        ("command_pools", ("search",), []),
        ("take_halts", ([], 1000, 1.0), []),
        ("react", ([{"run_id": run, "version": version, "signals": [], "reaction": {}}],),
         [{"run_id": run, "outcome": "conflict", "targets": []}]),
    ]  # fmt: skip


def _sweeps() -> list[Called]:
    quiet: Item = {"failed": [], "targets": []}
    resolving: Item = {"resolved": [], "resumed": [], **quiet}
    return [
        ("sweep_leases", (1000,), {"recovered": [], "ended": [], **quiet}),
        ("sweep_expired", (1000,), {"ended": [], **quiet}),
        ("sweep_queued", (1000,), {"dispatched": [], **quiet}),
        ("sweep_waits", (1000,), resolving),
        ("sweep_reports", (1000,), resolving),
        ("sweep_stuck", (1000, ""), {"resumed": [], "after": None, **quiet}),
        ("sweep_stops", (1000,), {"stopped": [], "stopping": [], "owners": [], **quiet}),
        ("sweep_bells", (0.0,), []),
        ("sweep_pending_reactions", ([TARGET], 1000), []),
    ]  # fmt: skip


def _other_calls(claimed: Item, keys: list[str], now: datetime) -> list[Called]:
    """Those of the outbox, callbacks, boxes, memories and operators; start_runs is the last: it makes the project's run."""
    run, turn = claimed["run_id"], claimed["turn_id"]
    fork = {"box_id": "fork_new", "base_box_id": "context_1"}
    stale: Item = {"turn_id": turn, "outcome": "stale"}
    return [
        ("declare_wire", ("nats",), "declared"),
        ("read_outbox", (1000,), []),
        ("mark_published", (keys,), 0),
        ("take_callbacks", (1000, 30.0), []), ("sweep_callbacks", (1000, 0.0), {"abandoned": []}),
        ("record_callbacks", ([{"callback_id": "callback_1", "attempt": 1, "state": "delivered"}],),
         [{"callback_id": "callback_1", "outcome": "stale"}]),
        ("redeliver_callbacks", (["callback_1"],), [{"callback_id": "callback_1", "outcome": "unknown_callback"}]),
        ("fork_boxes", ([fork],), [{"box_id": "fork_new", "outcome": "unknown_box"}]),
        ("replace_boxes", ([turn_item(claimed, context_box_id="context_1")],), [stale]),
        ("read_box", ("context_1", 0, 1000), []),
        ("read_conversation", (run, "writer", 1000, 10), []),
        ("read_shared_log", (run, 1, [], None), None), ("first_failure", (run,), None),
        ("read_open_turns", (TARGET, run, "", 0, 1000), {"turns": [], "next": None}),
        ("read_ended_turns", (run, 0, 1000), {"turns": [], "next": None, "memory": None}),
        ("why", (f"sig_{run}_1", 100), {**_UNKNOWN, "code": "unknown_signal", "message": f"no signal sig_{run}_1: there is no run {run}"}),
        ("why_not", (run, "writer", 0, 100), {**_UNKNOWN, "message": f"no run {run}"}),
        ("read_tree", (run, 0, 100), {**_UNKNOWN, "message": f"no run {run}"}),
        ("read_graph", (run, 0, 100), {**_UNKNOWN, "message": f"no run {run}"}),
        ("prune", (now, 1000), {"turns": 0, "runs": 0, "signals": 0, "cards": 0, "boxes": 0, "blobs": 0,
                                      "tombstones": 0, "memories": 0, "breakers": 0, "rates": 0, "more": False}),
        ("remember", ([{"memory_id": "memory_0", "text": "mine"}],), [{"memory_id": "memory_0", "outcome": "remembered"}]),
        ("recall", ("secret", None, 100), []),
        ("forget", ([{"memory_id": "memory_1"}],), [{"memory_id": "memory_1", "outcome": "unknown"}]),
        ("deregister", ([{"worker": "worker-1"}],), [{"worker": "worker-1", "outcome": "unknown"}]),
        ("beat", ([{"worker": "worker-1"}],), [{"worker": "worker-1", "outcome": "ready"}]),
        ("list_workers", (), ...),
        ("list_subscriptions", (None, 100), []),
        ("take_signals", ("search", "thief", 10, 1.0), {"outcome": "unknown"}),
        ("record_positions", ([{"name": "search", "subscriber": "thief", "run_id": run, "position": 1}],), [{"run_id": run, "outcome": "stale"}]),
        ("unsubscribe", ("search",), {"outcome": "unknown"}),
        ("subscribe", ("search", ["**"], "start", {}), {"outcome": "opening"}),
        ("liveness", (), []),
        ("measure", (), {"queues": [], "leases": [], "outbox": [], "breakers": [], "budgets": []}),
        ("doctor", (True,), []),
        ("bell_key", (), ...),
        ("put_boxes", ([{"box_id": "context_1", "cards": []}],), [{"box_id": "context_1", "outcome": "put"}]),
        ("set_limits", ({"card_bytes_max": 7},), ...),
        ("start_runs", ([run_item(run, ["stranger"], {turn: "stranger"})],),
         [{"run_id": run, "outcome": "started", "targets": [TARGET], "woken": [f"{run}/stranger"]}]),
        ("start_and_claim", ([run_item(run, ["stranger"], {turn: "stranger"})], [{"target": "other"}], "thief", 1000, 30.0),
         {"started": [{"run_id": run, "outcome": "duplicate", "targets": []}], "claimed": []}),
    ]  # fmt: skip


@pytest.mark.proves("S1")
async def test_no_function_reaches_into_another_project_by_its_ids(kernel: Kernel) -> None:
    await fill(kernel)
    (claimed,) = [  # the claim of turn_3's owner
        {"agent_id": row["agent_id"], "agent": row["agent_name"], "run_id": row["run_id"], "turn_id": "turn_3",
         "epoch": row["turn_epoch"], "activation_id": "sig_run_a_2", "run": {"version": 0}}
        for row in await kernel.rows("agent_state_head", "*", "status = 'running'")
    ]  # fmt: skip
    every_call = await calls_with(kernel, claimed)
    assert {function for function, _, _ in every_call} == set(KERNEL)
    before = await kernel.everything()
    kernel.wait(LATER_SECONDS)  # all that kernel has would be due by now
    for function, args, expected in every_call:
        answer = await kernel.call(function, *args, project=f"{kernel.project} stranger")
        assert expected is ... or answer == expected, function
    assert await kernel.everything() == before
    kernel.is_corrupted = False


@pytest.mark.proves("S1")
async def test_every_public_function_takes_the_project_first_and_pins_its_search_path(kernel: Kernel) -> None:
    rows = await kernel.connection.fetch(
        "select proname, proargnames[1] as first, proargtypes[0]::regtype::text as type, proconfig, prosecdef from pg_proc"
        " where pronamespace = 'heliograph'::regnamespace and proname !~ '^_' order by proname"
    )
    assert {row["proname"] for row in rows} == set(KERNEL) | NOT_CALLED
    assert [row["proname"] for row in rows if (row["first"], row["type"]) != ("p_project", "text")] == []
    assert [row["proname"] for row in rows if not row["proconfig"][0].startswith("search_path=pg_catalog")] == []


@pytest.mark.proves("S1")
async def test_every_view_shows_the_project_of_its_rows(kernel: Kernel) -> None:
    await fill(kernel)
    views = await kernel.connection.fetch("select viewname from pg_views where schemaname = 'heliograph' order by 1")
    for (view,) in views:
        assert await kernel.rows(view) != [], view
        query = f"select count(*) from heliograph.{view} where project_id = $1"
        assert await kernel.connection.fetchval(query, "nobody's") == 0


async def test_python_and_sql_agree_on_the_arguments_of_each_function(kernel: Kernel) -> None:
    for name, function in KERNEL.items():
        types = await kernel.connection.fetchval(
            "select array(select format_type(t, null) from unnest(proargtypes) with ordinality a (t, n) order by n)"
            "  from pg_proc where oid = $1::text::regproc", f"heliograph.{name}"
        )  # fmt: skip
        spelled = {
            "float8": "double precision",
            "float8[]": "double precision[]",
            "timestamptz": "timestamp with time zone",
        }
        expected = [spelled.get(cast, cast) for cast in function.types]
        if function.takes_now:
            expected.append("timestamp with time zone")
        assert types == expected
