"""Causes in SQL: `why` returns what a walk over the parents in Python finds, and reads one row per step."""

from __future__ import annotations

import json
import random
from datetime import datetime
from typing import Any

import asyncpg
import pytest

from heliograph.turn.drafts import parent_id
from tests.kernel.kit import START, Item, Kernel, draft, ending

RUNS = ("run_1", "run_1_2", "run_x")  # the id of the second begins as the id of a signal of the first
SIGNALS = 40
NAMES = ("draft:ready", "agent:completed", "agent:activated", "text:delta", "state:score:changed", "user:message")
LARGE = 3000


# ── A log of random commits, and the walk over its parents ────────────────────────────────────


def random_entries(choice: random.Random, run: str, first: int, count: int) -> list[Item]:
    """Entries of one commit; messages have a parent in an earlier run, and a few parents are pruned or missing."""
    entries: list[Item] = []
    for place in range(count):
        seq = first + place
        name = choice.choice(NAMES)
        parent: Any = (
            choice.randrange(place)
            if place and choice.random() < 0.6
            else None
            if seq == 1
            else f"{choice.choice((f'sig_{run}_', ''))}{choice.randint(1, seq - 1)}"  # its id, or its position
        )
        if name == "user:message" and run != RUNS[0]:
            parent = f"sig_{RUNS[RUNS.index(run) - 1]}_{choice.randint(1, SIGNALS)}"
        if name == "state:score:changed" and place:
            parent = place - 1
        payload = {"value": "x" * choice.choice((3, LARGE))} if choice.random() < 0.5 else {"n": seq}
        entry = {
            "name": "workflow:start" if seq == 1 else name,
            "payload": payload,
            "parent": parent,
            "agent": choice.choice((None, "writer")),
        }
        entries.append(entry | ({"trust": "untrusted"} if choice.random() < 0.2 else {}))
    return entries


async def write_log(kernel: Kernel, seed: int) -> dict[str, Item]:
    """Fill three runs with random signals. Returns all signals by id: {entry, entries, place, turn_id}."""
    choice, found = random.Random(seed), {}
    for run in RUNS:
        await kernel.running(run, f"turn_{run}")
        await kernel.connection.execute(
            "delete from heliograph.signals where project_id = $1 and run_id = $2", kernel.project, run
        )
        first = 1
        while first <= SIGNALS:
            count = min(choice.randint(1, 6), SIGNALS + 1 - first)
            entries, turn_id = (
                random_entries(choice, run, first, count),
                choice.choice((None, f"turn_{run}", "turn_pruned")),
            )
            await kernel.connection.execute(
                "insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at) values ($1, $2, $3, $4, $5, $6, $7)",
                kernel.project, run, first, count, entries, turn_id, START,
            )  # fmt: skip
            for place, entry in enumerate(entries):
                found[f"sig_{run}_{first + place}"] = {"run_id": run, "seq": first + place, "first": first, "entries": entries,
                                                       "entry": entry, "place": place, "turn_id": turn_id}  # fmt: skip
            first += count
        await kernel.connection.execute("update heliograph.runs set signal_seq = $3 where project_id = $1 and run_id = $2",
                                        kernel.project, run, SIGNALS)  # fmt: skip
    kernel.is_corrupted = True  # the log does not belong to the turns
    return found


def parent_of(signal: Item) -> str | None:
    return parent_id(signal["run_id"], signal["first"], signal["entry"]["parent"])


def walked(log: dict[str, Item], identifier: str, limit: int = 1000) -> list[str]:
    """The ids of a signal and its causes."""
    ids: list[str] = []
    at: str | None = identifier
    while at is not None and at in log and len(ids) < limit:
        ids.append(at)
        at = parent_of(log[at])
    return ids


def expected_link(signal: Item) -> Item:
    """A signal as `why` returns it, without its turn and its time."""
    entry, large = signal["entry"], len(json.dumps(signal["entry"]["payload"])) > 2000
    source = {
        key: value for key, value in (("agent", entry["agent"]), ("parent", parent_of(signal))) if value is not None
    }
    link = {"id": f"sig_{signal['run_id']}_{signal['seq']}", "name": entry["name"], "run_id": signal["run_id"], "seq": signal["seq"],
            "turn_id": signal["turn_id"], **({} if large else {"payload": entry["payload"]}), **({"source": source} if source else {}),
            **({"trust": "untrusted"} if "trust" in entry else {})}  # fmt: skip
    changes = [
        {"key": "score", "id": f"sig_{signal['run_id']}_{signal['first'] + place}"}
        for place, each in enumerate(signal["entries"])
        if each["name"] == "state:score:changed" and each["parent"] == signal["place"] and type(each["parent"]) is int
    ]
    return link | ({"changes": changes} if changes and entry["name"] == "agent:completed" else {})


def comparable(link: Item) -> Item:
    kept = {key: value for key, value in link.items() if key not in ("turn", "timestamp", "payload_bytes")}
    if "changes" in kept:
        kept["changes"] = [{"key": each["key"], "id": each["id"]} for each in kept["changes"]]
    return kept


@pytest.mark.proves("SIG-61")
@pytest.mark.parametrize("seed", range(2))
async def test_why_equals_a_walk_over_the_parents_across_runs(kernel: Kernel, seed: int) -> None:
    log = await write_log(kernel, seed)
    rows = await kernel.connection.fetch("select id, heliograph.why($1, id, 1000) as why from unnest($2::text[]) id",
                                         kernel.project, list(log))  # fmt: skip
    crossed = 0
    for row in rows:
        answer, ids = row["why"], walked(log, row["id"])
        assert [link["id"] for link in answer["chain"]] == ids
        assert [comparable(link) for link in answer["chain"]] == [expected_link(log[each]) for each in ids]
        assert (answer["outcome"], answer["signal"], answer["end"], answer["next"]) == ("ok", row["id"], "root", None)
        crossed += len({link["run_id"] for link in answer["chain"]}) > 1
        for link in answer["chain"]:
            large = "payload_bytes" in link
            assert large != ("payload" in link)
            assert datetime.fromisoformat(link["timestamp"]) == START
    assert crossed > 10


async def test_long_chain_is_returned_in_pages(kernel: Kernel) -> None:
    log = await write_log(kernel, 7)
    longest = max(log, key=lambda each: len(walked(log, each)))
    ids: list[str] = []
    at: str | None = longest
    while at is not None:
        page = await kernel.call("why", at, 3)
        assert (page["end"], page["next"] is None) in (("limit", False), ("root", True))
        ids += [link["id"] for link in page["chain"]]
        at = page["next"]
    assert ids == walked(log, longest)
    with pytest.raises(asyncpg.DataError, match="p_limit must be from 1 to 1000"):
        await kernel.call("why", longest, 1001)
    with pytest.raises(asyncpg.DataError, match="p_limit must be from 1 to 1000"):
        await kernel.call("why", longest, None)


# ── Turns, delegations, messages ──────────────────────────────────────────────────────────────


async def sent_between_runs(kernel: Kernel) -> Item:
    """A turn of run_a sends a message to the critic of run_b, which emits draft:ready. Returns the critic's turn."""
    await kernel.running("run_a", "turn_a")
    await kernel.running("run_b", "turn_b")
    await kernel.enqueue("run_b", "critic", "turn_sent", parent_turn_id="turn_a")
    return next(each for each in await kernel.claim() if each["turn_id"] == "turn_sent")


@pytest.mark.proves("SIG-60", "SIG-61")
async def test_message_from_another_run_continues_the_chain_there(kernel: Kernel) -> None:
    critic = await sent_between_runs(kernel)
    answer = await kernel.call("why", critic["activation_id"], 100)
    assert [(link["id"], link["name"]) for link in answer["chain"]] == [
        ("sig_run_b_4", "agent:activated"), ("sig_run_b_3", "mail:came"), ("sig_run_a_2", "agent:activated"), ("sig_run_a_1", "workflow:start"),
    ]  # fmt: skip
    assert answer["end"] == "root"


@pytest.mark.proves("SIG-60")
async def test_message_without_a_cause_from_a_turn_of_the_same_run_has_its_activation_as_parent(kernel: Kernel) -> None:
    await kernel.running("run_a", "turn_a")
    await kernel.enqueue("run_a", "critic", "turn_1", parent_turn_id="turn_a")
    await kernel.enqueue("run_a", "critic", "turn_2", parent_turn_id="turn_a", cause="sig_run_a_1")
    rows = await kernel.rows("signal_log", "seq, parent", "name = 'mail:came'")
    assert [tuple(row) for row in rows] == [(3, "sig_run_a_2"), (5, "sig_run_a_1")]


async def test_link_names_the_turn_and_the_delegation_and_the_changes_of_the_state(kernel: Kernel) -> None:
    claimed = await kernel.running("run_a", "turn_a")
    done = ending(claimed, ends="success")
    done["signals"] = [
        draft("agent:completed", claimed["activation_id"], agent="writer"),
        draft("state:score:changed", 0, agent="writer", payload={"value": 7}),
        draft("state:text:changed", 0, agent="writer", payload={"value": "x" * LARGE}, trust="untrusted"),
        draft("draft:ready", 0, agent="writer"),
        draft("workflow:end", 3),
    ]
    await kernel.call("finish", [done])
    answer = await kernel.call("why", "sig_run_a_6", 100)
    ready, completed, activated, _ = answer["chain"]
    assert ready["turn"] == {"turn_id": "turn_a", "agent": "writer", "outcome": "success", "attempts": 0}
    assert completed["changes"] == [
        {"id": "sig_run_a_4", "key": "score", "value": 7},
        {
            "id": "sig_run_a_5",
            "key": "text",
            "value_bytes": completed["changes"][1]["value_bytes"],
            "trust": "untrusted",
        },
    ]
    assert completed["changes"][1]["value_bytes"] > LARGE
    assert "turn" not in activated
    assert activated["turn_id"] is None


# ── Signals that the log does not have ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("identifier", "message"),
    [("sig_run_a_9", "no signal sig_run_a_9 yet: run run_a has 2 signals and still runs"),
     ("sig_run_x_1", "no signal sig_run_x_1: there is no run run_x"),
     ("sig_run_a_999999999999999999", "no signal sig_run_a_999999999999999999 yet: "),
     *((text, f"no signal {text}: the id of a signal is sig_<run>_<position>")
       for text in ("", "sig_", "sig__1", "sig_run_a_0", "sig_run_a_01", "sig_run_a_-1", "sig_run_a_1.5", "sig_run_a_" + "9" * 19, "run_a",
                    "sig_run_a_1 ", "sig_run_a_١", "'; drop schema heliograph; --"))],
)  # fmt: skip
async def test_unknown_signal_is_rejected_with_its_problem(kernel: Kernel, identifier: str, message: str) -> None:
    await kernel.running()
    for function, *more in (("why", 10), ("read_tree", 0, 10), ("read_graph", 0, 10)):
        answer = await kernel.call(function, identifier, *more)
        is_run = not identifier.startswith("sig_") or "<run>" in message
        assert answer["outcome"] == "rejected" or identifier == "run_a"
        if function == "why" or not is_run:
            assert answer["code"] == "unknown_signal"
            assert answer["message"].startswith(message)


async def test_signal_of_an_ended_run_has_its_last_position_in_the_message(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running(), ends="success")
    answer = await kernel.call("why", "sig_run_a_99", 10)
    assert answer["message"] == "no signal sig_run_a_99: run run_a ended with 4 signals"


@pytest.mark.proves("S1")
async def test_signal_of_another_project_is_unknown(kernel: Kernel) -> None:
    await kernel.running()
    for function, *args in (("why", "sig_run_a_1", 10), ("read_tree", "run_a", 0, 10), ("read_graph", "sig_run_a_1", 0, 10),
                            ("why_not", "run_a", "critic", 0, 10)):  # fmt: skip
        answer = await kernel.call(function, *args, project=f"{kernel.project} too")
        assert (answer["outcome"], answer["code"]) == (
            "rejected",
            "unknown_run" if "run_a" in args else "unknown_signal",
        )


async def test_pruned_signal_and_the_chain_before_it_are_reported(kernel: Kernel) -> None:
    await kernel.running("run_a", "turn_a")
    await kernel.running("run_b", "turn_b")
    await kernel.enqueue("run_a", "critic", "turn_c", cause="sig_run_a_2")
    await kernel.harm("delete from signals where project_id = $1 and run_id = 'run_a' and seq = 1",
                      "update runs set pruned_seq = 2 where project_id = $1 and run_id = 'run_a'",
                      "delete from runs where project_id = $1 and run_id = 'run_b'",
                      "insert into pruned (project_id, id, pruned_at) values ($1, 'run:run_b', now())")  # fmt: skip
    kernel.is_corrupted = True
    answer = await kernel.call("why", "sig_run_a_2", 10)
    assert (answer["code"], answer["message"]) == (
        "pruned_signal",
        "signal sig_run_a_2 is pruned: the log of run run_a begins at position 3",
    )
    assert (await kernel.call("why", "sig_run_b_1", 10))[
        "message"
    ] == "run run_b is pruned, with its signal sig_run_b_1"
    assert (await kernel.call("read_tree", "run_b", 0, 10))["code"] == "pruned_run"
    rest = await kernel.call("why", "sig_run_a_4", 10)
    assert [link["seq"] for link in rest["chain"]] == [4, 3]
    assert (rest["end"], rest["next"]) == ("pruned", "sig_run_a_2")


@pytest.mark.parametrize("parent", ["sig_run_a_4", "sig_run_a_3", "sig_run_gone_1", "nonsense"])
async def test_parent_that_is_missing_or_not_earlier_ends_the_chain(kernel: Kernel, parent: str) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_c")
    await kernel.harm(
        f"update signals set entries = jsonb_set(entries, '{{0,parent}}', '\"{parent}\"') where project_id = $1 and seq = 3"
    )
    kernel.is_corrupted = True
    answer = await kernel.call("why", "sig_run_a_4", 10)
    assert [link["seq"] for link in answer["chain"]] == [4, 3]
    assert (answer["end"], answer["next"]) == ("missing", parent)
    tree = await kernel.call("read_tree", "sig_run_a_1", 0, 10)
    assert [each["seq"] for each in tree["signals"]] == [1, 2]


# ── The cost ──────────────────────────────────────────────────────────────────────────────────

FILL = """
insert into heliograph.signals (project_id, run_id, seq, count, entries, at)
  select $1, 'run_a', 2 * n + 1, 2, jsonb_build_array('{"name": "noise", "parent": "sig_run_a_1"}'::jsonb, jsonb_build_object(
         'name', 'step', 'parent', 'sig_run_a_' || 2 * n)), now() from generate_series(1, $2::integer) n
"""
READ = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables where schemaname = 'heliograph'"


async def rows_read(kernel: Kernel, commits: int, limit: int) -> int:
    """How many rows `why` reads for a signal in the middle of a log of so many commits."""
    undone = kernel.connection.transaction()
    await undone.start()
    await kernel.connection.execute(FILL, kernel.project, commits)
    await kernel.connection.execute(
        "update heliograph.runs set signal_seq = $2 where project_id = $1", kernel.project, 2 * commits + 2
    )
    before = await kernel.connection.fetchval(READ)
    answer = await kernel.call("why", f"sig_run_a_{commits + commits % 2 + 2}", limit)
    assert (len(answer["chain"]), answer["end"]) == (limit, "limit")
    read = await kernel.connection.fetchval(READ) - before
    await undone.rollback()
    return int(read)


async def test_each_link_is_one_look_up_however_long_the_log_is(kernel: Kernel) -> None:
    await kernel.running()
    short = await rows_read(kernel, 100, 30)
    assert short <= 30 + 5
    assert await rows_read(kernel, 3000, 30) == short
