"""Effects in SQL: `read_tree` pages through what a walk over the children in Python finds, `read_graph` joins it with the causes, and
`why_not` returns the facts about an agent."""

from __future__ import annotations

import random
from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import Item, Kernel, draft, ending
from tests.kernel.test_boxes import buffers
from tests.kernel.test_causes import RUNS, SIGNALS, parent_of, walked, write_log


def effects_of(log: dict[str, Item], root: str) -> list[str]:
    """The ids of a signal and of all its effects in the same run, in order."""
    run, found = log[root]["run_id"], {root}
    for identifier, signal in log.items():  # in order: a parent comes before its children
        if signal["run_id"] == run and parent_of(signal) in found:
            found.add(identifier)
    return [each for each in log if each in found]


async def paged(kernel: Kernel, function: str, subject: str, limit: int) -> list[Item]:
    pages = [await kernel.call(function, subject, 0, limit)]
    while pages[-1]["next"] is not None:
        pages.append(await kernel.call(function, subject, pages[-1]["next"], limit))
    return pages


@pytest.mark.parametrize("seed", range(2))
async def test_tree_pages_through_the_effects_that_a_walk_finds(kernel: Kernel, seed: int) -> None:
    log = await write_log(kernel, seed)
    for root in list(log)[seed::9]:
        for limit in (3, 1000):
            pages = await paged(kernel, "read_tree", root, limit)
            assert [each["id"] for page in pages for each in page["signals"]] == effects_of(log, root)
            assert max(len(page["signals"]) for page in pages) <= limit
    for run in RUNS:
        pages = await paged(kernel, "read_tree", run, 7)
        assert [each["seq"] for page in pages for each in page["signals"]] == list(range(1, SIGNALS + 1))
        assert {page["run_id"] for page in pages} == {run}


async def test_graph_joins_causes_and_effects_and_marks_messages(kernel: Kernel) -> None:
    log = await write_log(kernel, 3)
    for root in list(log)[::9]:
        graph = await kernel.call("read_graph", root, 0, 1000)
        ids = [node["id"] for node in graph["nodes"]]
        assert ids == [*reversed(walked(log, root)[1:]), *effects_of(log, root)]
        edges = {(edge["from"], edge["to"]): edge["kind"] for edge in graph["edges"]}
        assert set(edges) == {(parent_of(log[each]), each) for each in ids if parent_of(log[each]) in ids}
        for (cause, effect), kind in edges.items():
            is_message = log[cause]["run_id"] != log[effect]["run_id"]
            is_activation = log[effect]["entry"]["name"] == "agent:activated"
            assert kind == ("activation" if is_activation else "message" if is_message else "signal")


async def test_commit_of_many_signals_is_read_once_and_not_for_each_of_them(kernel: Kernel) -> None:
    claimed = await kernel.running()
    chance = random.Random(1)  # text that does not become smaller when it is stored
    drafts = [
        draft("x:y", n - 1 if n else claimed["activation_id"], payload=chance.randbytes(500).hex()) for n in range(400)
    ]
    await kernel.append(claimed, *drafts)
    for query in (
        "select heliograph.read_tree($1, 'sig_run_a_3', 2, 1000)",
        "select heliograph.why($1, 'sig_run_a_402', 1000)",
    ):
        assert await buffers(kernel, query, kernel.project) < 5 * 400  # the commit has about 60 pages


async def test_page_beyond_the_log_is_empty_and_limits_are_checked(kernel: Kernel) -> None:
    await kernel.running()
    for subject in ("run_a", "sig_run_a_1"):
        for place in (2, 50, 3_000_000_000, 2**63 - 1):
            assert await kernel.call("read_tree", subject, place, 10) == {
                "outcome": "ok", "subject": subject, "run_id": "run_a", "signals": [], "next": None,
            }  # fmt: skip
    for after, limit in ((0, 0), (0, 1001), (-1, 10), (0, None), (None, 10)):
        for function in ("read_tree", "read_graph"):
            with pytest.raises(asyncpg.DataError, match="p_limit must be from 1 to 1000, and p_after 0 or more"):
                await kernel.call(function, "run_a", after, limit)
    with pytest.raises(asyncpg.DataError, match="p_limit must be from 1 to 100000"):
        await kernel.call("why_not", "run_a", "critic", 0, 100_001)


async def test_why_not_returns_skips_joins_and_names(kernel: Kernel) -> None:
    claimed = await kernel.running("run_a", "turn_a")
    guard = {"verdict": False, "reads": [{"key": "score", "value": 1}]}
    done = ending(
        claimed,
        memory={"joins": {"critic": [1]}, "code": "MAX_ACTIVATIONS", "stopped_by": "activation limit"},
        ends="failed",
    )
    done["signals"][1:1] = [
        draft("draft:ready", 0, agent="writer"),
        draft(
            "agent:skipped",
            1,
            agent="critic",
            payload={"agent": "critic", "reason": "when guard false", "guard": guard},
        ),
        draft("workflow:terminating", 2),
    ]
    await kernel.call("finish", [done])
    facts = await kernel.call("why_not", "run_a", "critic", 0, 1000)
    assert facts["skips"] == {"count": 1, "last": [
        {"id": "sig_run_a_5", "name": "draft:ready", "cause": "sig_run_a_4", "reason": "when guard false", "guard": guard},
    ]}  # fmt: skip
    assert {each["name"]: (each["count"], each["last"]) for each in facts["names"]}["draft:ready"] == (1, "sig_run_a_4")
    assert (facts["is_agent"], facts["joins"], facts["code"], facts["stopped_by"]) == (
        True,
        [1],
        "MAX_ACTIVATIONS",
        "activation limit",
    )
    assert (facts["status"], facts["activations"], facts["terminating"], facts["next"]) == (
        "ended",
        0,
        "sig_run_a_6",
        None,
    )
    writer = await kernel.call("why_not", "run_a", "writer", 0, 2)
    assert (writer["activations"], writer["next"]) == (1, 2)
    assert not (await kernel.call("why_not", "run_a", "nobody", 0, 10))["is_agent"]


# ── Joins ─────────────────────────────────────────────────────────────────────────────────────


async def joined(kernel: Kernel, *members: Any) -> Item:
    """A turn ends with draft:ready and an activation of the critic, whose payload names these signals; return why of it."""
    claimed = await kernel.running("run_a", "turn_a")
    done = ending(claimed, ends="success")
    done["signals"] = [
        draft("agent:completed", claimed["activation_id"], agent="writer"), draft("draft:ready", 0, agent="writer"),
        draft("agent:activated", 1, agent="critic", payload={"agent": "critic", "joined": list(members)}), draft("workflow:end", 2),
    ]  # fmt: skip
    await kernel.call("finish", [done])
    answer: Item = await kernel.call("why", "sig_run_a_5", 10)
    return answer


@pytest.mark.proves("SIG-61")
async def test_why_and_graph_have_all_signals_of_a_join(kernel: Kernel) -> None:
    members = [{"pattern": "workflow:start", "signal": "sig_run_a_1"}, {"pattern": "draft:*", "before": 1}]
    answer = await joined(kernel, *members)
    found = answer["chain"][0]["joined"]
    assert [(each["pattern"], each["id"], each["signal"]["name"]) for each in found] == [
        ("workflow:start", "sig_run_a_1", "workflow:start"), ("draft:*", "sig_run_a_4", "draft:ready"),
    ]  # fmt: skip
    assert [link["seq"] for link in answer["chain"]] == [5, 4, 3, 2, 1]
    graph = await kernel.call("read_graph", "sig_run_a_5", 0, 3)
    assert [node["seq"] for node in graph["nodes"]] == [1, 3, 4, 5, 6]
    edges = [(edge["from"][-1], edge["to"][-1], edge["kind"]) for edge in graph["edges"]]
    assert edges == [("3", "4", "signal"), ("4", "5", "activation"), ("5", "6", "signal"), ("1", "5", "join")]


DAMAGED: list[Any] = [
    {}, 7, None, "x", [], {"signal": 5}, {"signal": "sig_run_a_99"}, {"before": -1}, {"before": "1e9"}, {"before": 10**18}, {"pattern": {}},
    {"signal": "sig_run_b_1", "pattern": "x" * 5000}, {"before": 999_999_999},
]  # fmt: skip


async def test_damaged_members_of_a_join_are_returned_without_signals(kernel: Kernel) -> None:
    answer = await joined(kernel, *DAMAGED)
    found = answer["chain"][0]["joined"]
    assert len(found) == len(DAMAGED)
    assert not any("signal" in each for each in found)
    assert all(len(each.get("pattern", "")) <= 200 for each in found)
    assert len((await kernel.call("read_graph", "sig_run_a_5", 0, 10))["nodes"]) == 6


async def test_join_of_many_signals_is_cut(kernel: Kernel) -> None:
    answer = await joined(kernel, *[{"pattern": "p", "before": 1}] * 3000)
    assert len(answer["chain"][0]["joined"]) == 1000


# ── The cost ──────────────────────────────────────────────────────────────────────────────────

DEEP = """
insert into heliograph.signals (project_id, run_id, seq, count, entries, at)
  select $1, 'run_a', n, 1, jsonb_build_array(jsonb_build_object('name', 'step', 'parent', 'sig_run_a_' || n - 1)), now()
    from generate_series(3, $2::integer) n
"""


async def test_look_for_a_cause_ends_after_its_steps(kernel: Kernel) -> None:
    await kernel.running("run_a", "turn_a")
    await kernel.connection.execute(DEEP, kernel.project, 40)
    kernel.is_corrupted = True
    for of, upto, steps, expected in (
        (1, 40, 100, (True, 39)), (1, 40, 39, (True, 39)), (1, 40, 38, (None, 38)), (41, 40, 5, (False, 0)), (40, 40, 0, (True, 0)),
    ):  # fmt: skip
        row = await kernel.connection.fetchrow(
            "select * from heliograph._is_effect($1, 'run_a', $2, $3, $4)", kernel.project, of, upto, steps
        )
        assert row is not None
        assert tuple(row) == expected


@pytest.mark.long  # a chain of over fifty thousand commits
async def test_tree_that_is_too_deep_is_rejected_in_bounded_time(kernel: Kernel) -> None:
    await kernel.running("run_a", "turn_a")
    await kernel.connection.execute(DEEP, kernel.project, 50_100)
    await kernel.connection.execute(
        "update heliograph.runs set signal_seq = 50100 where project_id = $1", kernel.project
    )
    kernel.is_corrupted = True
    page = await kernel.call("read_tree", "sig_run_a_1", 49_990, 5)
    assert [each["seq"] for each in page["signals"]] == list(range(49_991, 49_996))
    for function in ("read_tree", "read_graph"):
        answer = await kernel.call(function, "sig_run_a_1", 50_050, 5)
        assert (answer["outcome"], answer["code"]) == ("rejected", "tree_too_deep")
    assert (await kernel.call("read_tree", "sig_run_a_100", 50_050, 5))["signals"][0]["seq"] == 50_051
