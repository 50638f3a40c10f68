"""stop_runs: a run is stopped, and each of its turns in a transaction of its own (K12, K26)."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Connect, Kernel, ending, stopping
from tests.kernel.test_isolation import opened, when_blocked


@pytest.mark.proves("S18", "K12", "K24", "K26")
async def test_stopped_run_stops_its_turns_and_wakes_no_agent(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_1": "writer", "turn_2": "writer", "turn_3": "critic"})
    claimed = await kernel.claim_one()
    version = (await kernel.run("run_a"))["version"]
    assert await kernel.stop("run_a", "graceful", reason="enough", actor="ann") == {
        "run_id": "run_a",
        "outcome": "stopping",
    }
    run = await kernel.run("run_a")
    assert (run["status"], run["stop_reason"], run["version"]) == ("terminating", "enough", version + 1)
    assert run["memory"] == {"stopped_by": "enough", "is_canceled": True}
    (said,) = await kernel.rows("signal_log", "*", "name = 'workflow:terminating'")
    assert (said["payload"], said["parent"]) == ({"reason": "enough", "actor": "ann"}, "sig_run_a_1")
    assert (await kernel.enqueue("run_a", "writer", "turn_9"))["outcome"] == "ended"
    assert (await kernel.finish(claimed, version=version, wakes={"turn_9": "critic"}))["outcome"] == "conflict"
    answer = await kernel.sweep("stops")
    assert (sorted(answer["stopped"]), answer["stopping"], answer["owners"]) == (
        sorted({"turn_1", "turn_2", "turn_3"} - {claimed["turn_id"]}), [claimed["turn_id"]], ["worker-1"],
    )  # fmt: skip
    rows = await kernel.rows("agent_inbox", "agent_turn_id, actor, status", "message_type = 'stop'")
    assert {row["actor"] for row in rows} == {"ann"}
    kernel.wait(10)
    assert (await kernel.sweep("stops"))["stopped"] == [claimed["turn_id"]]
    run = await kernel.run("run_a")
    assert (run["open_turns"], run["pending_reactions"], run["status"]) == (0, 3, "terminating")


@pytest.mark.proves("K26")
async def test_stopped_run_ends_with_its_pending_reactions(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.stop("turn_a")
    await kernel.stop("run_a")
    (pending,) = await kernel.pending()
    assert (pending["run"]["status"], pending["run"]["open_turns"]) == ("terminating", 0)
    end = {"name": "workflow:end", "parent": "sig_run_a_4", "payload": {}}
    answer = await kernel.react("run_a", pending["run"]["version"], end, status="ended", outcome="canceled")
    assert answer["outcome"] == "ok"
    assert await kernel.stop("run_a") == {"run_id": "run_a", "outcome": "already_done", "run_outcome": "canceled"}
    assert (await kernel.stop("run_x"))["outcome"] == "unknown_run"


async def test_run_that_ends_for_its_own_reason_keeps_it_despite_a_stop(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1")
    await kernel.finish(claimed, version=2, status="terminating", memory={"stopped_by": "end_when"})
    assert (await kernel.stop("run_a", reason="hurry"))["outcome"] == "stopping"
    run = await kernel.run("run_a")
    assert (run["memory"], run["stop_reason"]) == ({"stopped_by": "end_when"}, "hurry")
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_1"]


@pytest.mark.parametrize(("first", "second", "mode"), [
    ("graceful", "force", "force"), ("force", "graceful", "force"), ("graceful", "graceful", "graceful"),
])  # fmt: skip
async def test_stronger_of_two_stops_of_a_run_is_delivered(kernel: Kernel, first: str, second: str, mode: str) -> None:
    await kernel.running()
    await kernel.stop("run_a", first)
    await kernel.stop("run_a", second)
    (order,) = await kernel.rows("outbox", "*", "kind = 'stop'")
    assert (order["body"]["mode"], order["published_at"]) == (mode, None)
    answer = await kernel.sweep("stops")
    assert answer["stopped" if mode == "force" else "stopping"] == ["turn_a"]


@pytest.mark.proves("K12")
async def test_forced_stop_after_a_delivered_graceful_stop_is_delivered(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.stop("run_a", "graceful", grace_seconds=600)
    assert (await kernel.sweep("stops"))["stopping"] == ["turn_a"]
    await kernel.stop("run_a", "graceful", grace_seconds=600)
    before = await kernel.head("run_a/writer")
    assert (await kernel.sweep("stops"))["stopping"] == ["turn_a"]  # again, and nothing of it changes
    assert await kernel.head("run_a/writer") == before
    await kernel.stop("run_a", "force")
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_a"]


@pytest.mark.proves("K17")
async def test_stops_of_runs_in_any_order_do_not_deadlock_with_their_delivery(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    for name in "ab":
        await kernel.running(f"run_{name}", f"turn_{name}")
    await kernel.call("stop_runs", [stopping("run_b", "graceful"), stopping("run_a", "graceful")])
    async with opened(kernel):
        assert sorted((await kernel.sweep("stops"))["stopping"]) == ["turn_a", "turn_b"]
        again = other.call("stop_runs", [stopping("run_b"), stopping("run_a")])
        task = await when_blocked(other, again, watcher)
    assert [each["outcome"] for each in await task] == ["stopping", "stopping"]
    assert sorted((await kernel.sweep("stops"))["stopped"]) == ["turn_a", "turn_b"]


async def test_ending_after_the_stop_of_its_run_is_recomputed(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.stop("run_a", "graceful")
    (answer,) = await kernel.call("finish", [ending(claimed)])
    assert (answer["outcome"], answer["run"]["status"], answer["run"]["memory"]["stopped_by"]) == (
        "conflict", "terminating", "external_signal",
    )  # fmt: skip


async def test_closed_session_takes_no_more_messages_and_waits_for_its_reaction(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    assert (await kernel.stop("run_a", "close"))["outcome"] == "no_session"
    await kernel.connection.execute('update heliograph.runs set memory = memory || \'{"session": "open"}\'')
    before = await kernel.run("run_a")
    for _ in range(2):  # a second call has no effect
        assert await kernel.stop("run_a", "close", actor="ann") == {"run_id": "run_a", "outcome": "stopping"}
    run = await kernel.run("run_a")
    assert (run["status"], run["memory"]["session"], run["stop_reason"]) == ("terminating", "closed", None)
    assert (run["version"], run["pending_reactions"]) == (before["version"] + 1, 1)
    assert (await kernel.enqueue("run_a", "writer", "turn_9"))["outcome"] == "ended"
    (said,) = await kernel.rows("signal_log", "*", "name = 'workflow:terminating'")
    assert said["payload"] == {"reason": "closed", "actor": "ann"}
    assert (await kernel.claim_one())["turn_id"] == "turn_1"  # it answers the messages that it has


@pytest.mark.proves("P-53")
@pytest.mark.parametrize("mode", ["graceful", "force", "close"])
async def test_stop_or_close_ends_a_session_that_an_earlier_version_left_open(kernel: Kernel, mode: str) -> None:
    await kernel.start("run_a", ["writer"], {})
    # as the stop of a session without a turn left it: its signal waited for no reaction
    await kernel.connection.execute(
        """update heliograph.runs set status = 'terminating', stop_reason = 'enough',
               memory = '{"session": "open", "stopped_by": "enough", "is_canceled": true}'
            where project_id = $1""",
        kernel.project,
    )
    before = await kernel.run("run_a")
    for _ in range(2):  # a second call has no effect, because the reaction is pending
        assert await kernel.stop("run_a", mode, actor="ann") == {"run_id": "run_a", "outcome": "stopping"}
    run = await kernel.run("run_a")
    assert (run["status"], run["memory"], run["stop_reason"]) == ("terminating", before["memory"], "enough")
    assert (run["version"], run["pending_reactions"]) == (before["version"] + 1, 1)
    (said,) = await kernel.rows("signal_log", "*", "name = 'workflow:terminating'")
    assert said["payload"] == {"reason": "closed" if mode == "close" else "external_signal", "actor": "ann"}
    (pending,) = await kernel.pending()
    assert [signal["name"] for signal in pending["signals"]] == ["workflow:terminating"]
    end = {"name": "workflow:end", "parent": f"sig_run_a_{said['seq']}", "payload": {}}
    await kernel.react("run_a", run["version"], end, status="ended", outcome="canceled")
    assert (await kernel.stop("run_a", mode))["outcome"] == "already_done"
