"""Forks of runs: a new run shares the log of another one up to a signal, and nothing of it happens again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from tests.kernel.kit import Connect, Item, Kernel, activation, draft
from tests.kernel.waits import TOKEN, begin, command, record, report, suspend, suspended

AGENTS = ["writer", "critic"]


def fork_item(run_id: str, origin: str, seq: int, wakes: dict[str, tuple[str, int]] | None = None, **fork: Any) -> Item:
    """A fork. wakes: {turn id: (agent, position of its cause in the shared log)}."""
    wakes = wakes or {}
    signals = [draft("workflow:forked", f"sig_{origin}_{seq}", payload={"run_id": origin})]
    signals += [draft("agent:activated", f"sig_{origin}_{cause}", agent=agent) for agent, cause in wakes.values()]
    woken = [activation(agent, turn, n, {"seq": cause}) for n, (turn, (agent, cause)) in enumerate(wakes.items(), 1)]
    return {
        "run_id": run_id, "target": "newsroom", "request_hash": f"hash of {run_id}", "agents": AGENTS, "signals": signals,
        "reaction": {"state": {"n": 1}, "memory": {}, "activations": woken},
        "fork": {"run_id": origin, "seq": seq, **fork},
    }  # fmt: skip


async def start_fork(kernel: Kernel, *args: Any, **fork: Any) -> Item:
    (answer,) = await kernel.call("start_runs", [fork_item(*args, **fork)])
    return dict(answer)


async def log_of(kernel: Kernel, run_id: str, after: int = 0, limit: int = 100) -> list[str]:
    rows = await kernel.connection.fetch(
        "select id from heliograph.read_log($1, $2, $3, $4)", kernel.project, run_id, after, limit
    )
    return [row["id"] for row in rows]


async def first_turn_ended(kernel: Kernel) -> Item:
    """run_a: its writer has ended and has woken the critic: signals 1 and 2, and 3 and 4."""
    claimed = await kernel.running()
    await kernel.finish(claimed, wakes={"turn_b": "critic"})
    return claimed


async def test_fork_shares_the_log_of_its_run_and_continues_its_numbers(kernel: Kernel) -> None:
    await first_turn_ended(kernel)
    before = await kernel.run("run_a")
    answer = await start_fork(kernel, "run_f", "run_a", 4, {"turn_f": ("critic", 3)}, activations=1)
    assert answer["outcome"] == "started"
    assert await log_of(kernel, "run_f") == [f"sig_run_a_{n}" for n in range(1, 5)] + ["sig_run_f_5", "sig_run_f_6"]
    assert await log_of(kernel, "run_f", 3, 2) == ["sig_run_a_4", "sig_run_f_5"]
    assert await log_of(kernel, "run_f", 5) == ["sig_run_f_6"]
    assert await kernel.run("run_a") == before
    run = await kernel.run("run_f")
    assert (run["signal_seq"], run["activations"], run["open_turns"], run["forked_from"]) == (6, 2, 1, "run_a")
    [claimed] = [turn for turn in await kernel.claim() if turn["turn_id"] == "turn_f"]
    assert (claimed["cause"]["id"], claimed["cause"]["name"]) == ("sig_run_a_3", "agent:completed")
    assert claimed["activation_id"] == "sig_run_f_6"
    [inbox] = await kernel.rows("agent_inbox", "correlation_id", "agent_turn_id = 'turn_f'")
    [overview] = await kernel.rows("turn_overview", "cause_id", "turn_id = 'turn_f'")
    assert inbox["correlation_id"] == overview["cause_id"] == "sig_run_a_3"
    await kernel.finish(claimed, ends="success")
    assert await kernel.checks() == []


async def test_fork_of_a_fork_shares_both_logs(kernel: Kernel) -> None:
    await first_turn_ended(kernel)
    await start_fork(kernel, "run_f", "run_a", 4, {"turn_f": ("critic", 3)})
    await start_fork(kernel, "run_g", "run_f", 6, {"turn_g": ("critic", 3)})
    await start_fork(kernel, "run_h", "run_g", 2, {"turn_h": ("writer", 1)})
    assert await log_of(kernel, "run_g", 3, 3) == ["sig_run_a_4", "sig_run_f_5", "sig_run_f_6"]
    assert (await kernel.run("run_h"))["forked_from"] == "run_a"  # whose signal the second one is
    causes = {turn["turn_id"]: turn["cause"]["id"] for turn in await kernel.claim()}
    assert (causes["turn_g"], causes["turn_h"]) == ("sig_run_a_3", "sig_run_a_1")
    sent = await kernel.enqueue("run_g", "writer", "turn_m", cause="sig_run_a_2")
    assert sent["outcome"] == "queued"
    assert (await kernel.enqueue("run_g", "writer", "turn_n", cause="sig_run_g_2"))["code"] == "unknown_cause"
    await kernel.enqueue("run_g", "writer", "turn_o")
    [message] = await kernel.rows("signal_log", "parent", "run_id = 'run_g' and seq = 11")
    assert message["parent"] == "sig_run_a_1"
    assert await kernel.checks() == []


@pytest.mark.parametrize(
    ("origin", "seq", "code"),
    [
        ("run_x", 1, "unknown_run"),
        ("run_a", 9, "unknown_signal"),
        ("run_a", 3, "inside_commit"),
        ("run_a", 4, "run_ended"),
    ],
)
@pytest.mark.proves("P-09")
async def test_fork_that_cannot_work_is_rejected_and_writes_nothing(
    kernel: Kernel, origin: str, seq: int, code: str
) -> None:
    claimed = await kernel.running()
    await kernel.finish(claimed, ends="success")
    before = await kernel.everything()
    answer = await start_fork(kernel, "run_f", origin, seq)
    assert (answer["outcome"], answer["code"]) == ("rejected", code)
    assert await kernel.everything() == before


async def test_fork_starts_only_turns_again_that_its_run_had_activated(kernel: Kernel) -> None:
    await first_turn_ended(kernel)
    for origin in ("turn_b", "turn_x"):  # the critic's turn was activated by signal 4
        answer = await start_fork(
            kernel, "run_f", "run_a", 2, {"turn_f": ("writer", 1)}, turns=[{"turn_id": "turn_f", "origin": origin}]
        )
        assert answer["code"] == "unknown_turn"


async def test_same_fork_again_is_a_duplicate(kernel: Kernel) -> None:
    await first_turn_ended(kernel)
    await start_fork(kernel, "run_f", "run_a", 4, {"turn_f": ("critic", 3)})
    before = await kernel.everything()
    assert (await start_fork(kernel, "run_f", "run_a", 4, {"turn_g": ("critic", 3)}))["outcome"] == "duplicate"
    assert await kernel.everything() == before


async def test_subscription_receives_shared_signals_once(kernel: Kernel) -> None:
    await first_turn_ended(kernel)
    await start_fork(kernel, "run_f", "run_a", 4, {"turn_f": ("critic", 3)})
    while (await kernel.call("subscribe", "audit", ["agent:activated"], "start", {}))["outcome"] == "opening":
        pass
    await start_fork(kernel, "run_g", "run_a", 2, {"turn_g": ("writer", 1)})
    taken = [await kernel.call("take_signals", "audit", "w", 10, 30.0) for _ in range(3)]  # news, then older runs
    ids = sorted(signal["id"] for answer in taken for run in answer["runs"] for signal in run["signals"])
    assert ids == ["sig_run_a_2", "sig_run_a_4", "sig_run_f_6", "sig_run_g_4"]


@pytest.mark.proves("P-11")
async def test_prune_of_a_forked_run_waits_for_its_forks(kernel: Kernel) -> None:
    claimed = await first_turn_ended(kernel)
    await start_fork(kernel, "run_f", "run_a", 4, {"turn_f": ("critic", 3)})
    for turn in await kernel.claim():
        await kernel.finish(turn, ends="success", version=(await kernel.run(turn["run_id"]))["version"])
    await kernel.publish()
    kernel.wait(86_400 * 3)
    pruned = await kernel.call("prune", kernel.now - timedelta(days=1), 100)
    assert (pruned["runs"], pruned["turns"]) == (1, 1)  # the fork and its turn
    assert [row["run_id"] for row in await kernel.rows("runs", "run_id")] == ["run_a"]
    pruned = await kernel.call("prune", kernel.now - timedelta(days=1), 100)
    assert (pruned["runs"], pruned["turns"]) == (1, 2)
    assert claimed["turn_id"] == "turn_a"
    answer = await start_fork(kernel, "run_g", "run_a", 4)
    assert answer["code"] == "unknown_run"
    assert await kernel.checks() == []


async def test_fork_of_a_pruned_log_is_rejected(kernel: Kernel) -> None:
    await first_turn_ended(kernel)
    await kernel.publish()
    kernel.wait(86_400 * 3)
    await kernel.enqueue("run_a", "writer", "turn_c")
    await kernel.call("prune", kernel.now - timedelta(days=1), 100)
    assert (await kernel.run("run_a"))["pruned_seq"] == 2
    assert (await start_fork(kernel, "run_f", "run_a", 4))["code"] == "pruned_signal"


async def forked_with_calls(kernel: Kernel, seq: int, **fork: Any) -> Item:
    """Fork run_a, whose writer has suspended for command c1, and return the turn that starts the writer's turn again."""
    turns = [{"turn_id": "turn_f", "origin": "turn_a"}]
    answer = await start_fork(kernel, "run_f", "run_a", seq, {"turn_f": ("writer", 1)}, turns=turns, **fork)
    assert answer["outcome"] == "started"
    [claimed] = [turn for turn in await kernel.claim() if turn["turn_id"] == "turn_f"]
    return claimed


@pytest.mark.proves("P-10")
async def test_turn_of_a_fork_has_the_results_of_its_origin_and_none_of_its_later_ones(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "early")
    await record(
        kernel, claimed, "early", result={"paid": 40}, signals=[draft("tool:result", claimed["activation_id"])]
    )
    seq = (await kernel.run("run_a"))["signal_seq"]
    kernel.wait(1)
    await begin(kernel, claimed, "late")
    await record(kernel, claimed, "late", result={"paid": 41})
    turn = await forked_with_calls(kernel, seq)
    [wait] = turn["waits"]
    assert (wait["call_id"], wait["status"], wait["content"]["output"]) == ("early", "success", {"paid": 40})
    assert await kernel.checks() == []


async def test_call_without_a_result_is_unknown_to_the_fork_unless_it_had_no_effect(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "paying")
    await begin(kernel, claimed, "adding", effect="pure")
    kernel.wait(0.5)
    await kernel.append(claimed, draft("say", claimed["activation_id"], agent="writer"))
    turn = await forked_with_calls(kernel, 3)
    [wait] = turn["waits"]
    assert (wait["call_id"], wait["status"], wait["content"]["error"]["code"]) == ("paying", "unknown", "IN_DOUBT")
    assert (await begin(kernel, turn, "paying"))["outcome"] == "done"
    assert (await begin(kernel, turn, "adding", effect="pure"))["outcome"] == "fresh"
    assert await kernel.checks() == []


async def test_report_for_the_original_run_does_not_reach_its_fork(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"), signals=[draft("tool:call", "sig_run_a_2", agent="writer")])
    seq = (await kernel.run("run_a"))["signal_seq"]
    kernel.wait(1)
    await report(kernel, "turn_a", "c1", {"found": 3}, token=TOKEN)
    turn = await forked_with_calls(kernel, seq)
    assert [(wait["kind"], wait["status"]) for wait in turn["waits"]] == [("tool", "unknown")]
    await kernel.finish(turn, ends="success")
    assert await kernel.checks() == []


async def test_retry_makes_the_last_calls_again_if_they_failed(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for call, status in (("c1", "failed"), ("c2", "success"), ("c3", "failed")):
        await begin(kernel, claimed, call)
        await record(kernel, claimed, call, status=status, result=1, error={"code": "E", "message": "e"})
    await kernel.append(claimed, draft("say", claimed["activation_id"], agent="writer"))
    turn = await forked_with_calls(kernel, 3, repeats_failed=True)
    assert [wait["call_id"] for wait in turn["waits"]] == ["c1", "c2"]
    assert await kernel.checks() == []


# ── Times: a transaction takes its time before it waits for its locks ─────────────────────────


@pytest.mark.parametrize("has_result", [False, True])
async def test_position_decides_what_came_before_a_fork_and_not_the_time(kernel: Kernel, has_result: bool) -> None:
    claimed = await kernel.running()
    parent, early = claimed["activation_id"], kernel.now
    kernel.wait(2)
    await begin(kernel, claimed, "paying")
    if has_result:
        await record(kernel, claimed, "paying", result={"paid": 40}, signals=[draft("tool:result", parent)])
    late, kernel.now = kernel.now, early  # this append took its time first, and waited for the run
    await kernel.append(claimed, draft("say", parent, agent="writer"), signals_emitted=int(has_result))
    seq = (await kernel.run("run_a"))["signal_seq"]
    kernel.now = early - timedelta(seconds=1)
    await begin(kernel, claimed, "after")
    await record(kernel, claimed, "after", result={"paid": 41})
    kernel.now = late
    turn = await forked_with_calls(kernel, seq)
    assert [(wait["call_id"], wait["status"]) for wait in turn["waits"]] == [
        ("paying", "success" if has_result else "unknown")
    ]
    assert await kernel.checks() == []


async def test_retry_does_not_repeat_a_call_that_began_after_the_last_signal(kernel: Kernel) -> None:
    claimed = await kernel.running()
    kernel.wait(1)
    await begin(kernel, claimed, "paying")
    kernel.wait(1)
    await kernel.finish(
        claimed, outcome="failed", ends="failed"
    )  # its worker was lost during the call, for the last time
    turn = await forked_with_calls(kernel, 2, repeats_failed=True)
    assert [(wait["call_id"], wait["status"]) for wait in turn["waits"]] == [("paying", "unknown")]
    assert await kernel.checks() == []


async def test_results_of_one_batch_have_their_own_positions(kernel: Kernel) -> None:
    first = await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_b")
    items = []
    for claimed in (first, await kernel.claim_one()):
        await begin(kernel, claimed, "c1")
        names = {key: claimed[key] for key in ("agent_id", "turn_id", "epoch")}
        items.append({**names, "call_id": "c1", "status": "success", "result": 1, "signals_emitted": 0,
                      "signals": [draft("tool:result", claimed["activation_id"]), draft("say", 0)]})  # fmt: skip
    await kernel.call("record_call", items)
    rows = await kernel.rows("turn_waiting_tools", "opened_seq, resolved_seq")
    assert sorted((row["opened_seq"], row["resolved_seq"]) for row in rows) == [(5, 6), (5, 8)]


async def test_fork_waits_for_a_prune_of_the_turn_that_it_starts_again(kernel: Kernel, beside: Connect) -> None:
    holder, other = await beside(), await beside()
    claimed = await kernel.running()
    await begin(kernel, claimed, "paying")
    await kernel.append(claimed, draft("say", claimed["activation_id"], agent="writer"))
    await kernel.finish(claimed, wakes={"turn_b": "critic"})
    await kernel.publish()
    kernel.wait(86_400 * 3)
    other.now = kernel.now
    item = fork_item("run_f", "run_a", 3, {"turn_f": ("writer", 1)}, turns=[{"turn_id": "turn_f", "origin": "turn_a"}])
    async with holder.connection.transaction():  # as the fork does, before the prune reaches the run
        await holder.connection.execute(
            "select from heliograph.runs where project_id = $1 for key share", kernel.project
        )
        async with kernel.connection.transaction():
            assert (await kernel.call("prune", kernel.now - timedelta(days=1), 100))["turns"] == 1
            forking = asyncio.create_task(other.call("start_runs", [item]))
            await asyncio.sleep(0.1)
            assert not forking.done()
        (answer,) = await forking
    assert (answer["outcome"], answer["code"]) == ("rejected", "unknown_turn")


# ── Causes and effects ────────────────────────────────────────────────────────────────────────


async def test_causes_and_effects_of_a_fork_cross_into_the_log_that_it_shares(kernel: Kernel) -> None:
    await first_turn_ended(kernel)
    await start_fork(kernel, "run_f", "run_a", 4, {"turn_f": ("critic", 3)})
    await start_fork(kernel, "run_g", "run_f", 6, {"turn_g": ("critic", 3)})
    ids = [f"sig_run_a_{n}" for n in range(1, 5)] + ["sig_run_f_5", "sig_run_f_6", "sig_run_g_7", "sig_run_g_8"]
    for limit in (2, 1000):
        found, after = [], 0
        while after is not None:
            page = await kernel.call("read_tree", "run_g", after, limit)
            found += [each["id"] for each in page["signals"]]
            after = page["next"]
        assert found == ids
    graph = await kernel.call("read_graph", "run_g", 0, 1000)
    assert {edge["kind"] for edge in graph["edges"]} == {"activation", "signal"}
    assert ("sig_run_f_6", "sig_run_g_7") in {(edge["from"], edge["to"]) for edge in graph["edges"]}
    why = await kernel.call("why", "sig_run_g_7", 100)
    assert [link["id"] for link in why["chain"]] == [
        "sig_run_g_7",
        "sig_run_f_6",
        *(f"sig_run_a_{n}" for n in (3, 2, 1)),
    ]
    facts = await kernel.call("why_not", "run_g", "critic", 0, 1000)
    names = {each["name"]: (each["count"], each["last"]) for each in facts["names"]}
    assert names["workflow:start"] == (1, "sig_run_a_1")
    assert names["workflow:forked"] == (2, "sig_run_g_7")
    assert facts["activations"] == 3
    answer = await kernel.call("why", "sig_run_g_5", 100)
    assert (answer["code"], "this one is sig_run_f_5" in answer["message"]) == ("unknown_signal", True)


@pytest.mark.more
async def test_commits_that_suspend_and_resume_a_turn_make_checkpoints(kernel: Kernel) -> None:
    claimed = await kernel.running()

    def noted(count: int) -> list[Item]:
        texts = [sha256(str(n).encode()).hexdigest() for n in range(count)]
        return [draft("noted", claimed["activation_id"], payload={"text": text}) for text in texts]

    async def checkpoints() -> list[int]:
        return [row["seq"] for row in await kernel.rows("run_checkpoints", "seq")]

    await suspend(kernel, claimed, command("c1"), signals=noted(300))
    assert await checkpoints() == [302]
    await report(kernel, "turn_a", "c1", token=TOKEN)
    (again,) = await kernel.claim()
    await suspend(kernel, again, command("c2"), signals=noted(208))
    assert ((await kernel.run("run_a"))["signal_seq"], await checkpoints()) == (511, [302])
    await report(kernel, "turn_a", "c2", token=TOKEN)
    assert await checkpoints() == [302, 512]
    shared = await kernel.call("read_shared_log", "run_a", 512, [], None)
    assert (shared["checkpoint"]["seq"], shared["checkpoint"]["in_progress"]) == (512, [2])


@pytest.mark.more
async def test_fork_writes_the_same_rows_at_any_position(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for n in range(100):
        await kernel.append(claimed, draft("say", claimed["activation_id"], agent="writer"), signals_emitted=n)
    counts = []
    for n, seq in enumerate((2, 50, 102)):
        before = {table: len(rows) for table, rows in (await kernel.everything()).items()}
        await start_fork(kernel, f"run_{n}", "run_a", seq, {f"turn_{n}": ("writer", 1)})
        after = {table: len(rows) for table, rows in (await kernel.everything()).items()}
        counts.append({table: after[table] - before[table] for table in after if after[table] != before[table]})
    assert counts[0] == counts[1] == counts[2]
    assert counts[0] == {
        "runs": 1,
        "signals": 1,
        "agent_state_head": 2,
        "agent_turns": 1,
        "agent_inbox": 1,
    }
