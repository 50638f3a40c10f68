"""Durable subscriptions: positions, sharing, leases, offsets, and runs that are never missed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import Connect, Item, Kernel, draft, run_item


async def subscribe(kernel: Kernel, name: str = "s", *patterns: str, since: str = "start", after: Any = None) -> Item:
    for _ in range(1000):
        answer: Item = await kernel.call("subscribe", name, list(patterns or ("**",)), since, after or {})
        if answer["outcome"] != "opening":
            return answer
        await asyncio.sleep(0.001)
    raise AssertionError("it does not open")


async def take(kernel: Kernel, worker: str = "w1", limit: int = 10, name: str = "s", lease: float = 30) -> list[Item]:
    answer = await kernel.call("take_signals", name, worker, limit, lease)
    assert answer["outcome"] == "taken"
    return list(answer["runs"])


def of(name: str, worker: str, run_id: str, position: float, **more: Any) -> Item:
    return {"name": name, "subscriber": worker, "run_id": run_id, "position": position, **more}


async def record(kernel: Kernel, run_id: str, position: int, worker: str = "w1", **more: Any) -> str:
    [row] = await kernel.call("record_positions", [of("s", worker, run_id, position, **more)])
    return str(row["outcome"])


def seqs(runs: list[Item]) -> dict[str, list[int]]:
    return {run["run_id"]: [signal["seq"] for signal in run["signals"]] for run in runs}


async def take_until_left(kernel: Kernel, *run_ids: str) -> None:
    """Take until only these runs are left. A transaction that is in progress in any database of the server delays it."""
    left: list[str] = []
    for _ in range(500):
        assert await take(kernel) == []
        left = [row["run_id"] for row in await kernel.rows("subscription_runs", "run_id")]
        if left == list(run_ids):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the subscription has still the runs {left}")


async def test_subscribers_share_runs_and_each_signal_goes_to_one_in_the_order_of_its_run(kernel: Kernel) -> None:
    assert await subscribe(kernel) == {"outcome": "subscribed"}
    assert await subscribe(kernel) == {"outcome": "duplicate"}
    assert await subscribe(kernel, "s", "a:b") == {"outcome": "conflict"}
    for run in ("run_a", "run_b"):
        await kernel.start(run, ["writer"], {f"turn_{run}": "writer"})
    first, second = await take(kernel, "w1", 1), await take(kernel, "w2", 1)
    assert seqs(first) | seqs(second) == {"run_a": [1, 2], "run_b": [1, 2]}
    assert await take(kernel, "w3") == []
    mine = first[0]["run_id"]
    assert await record(kernel, mine, 2, "w2") == "stale"
    assert await record(kernel, mine, 1) == "ok"
    assert seqs(await take(kernel, "w3")) == {mine: [2]}
    listed = await kernel.call("list_subscriptions", None, 100)
    assert [(row["name"], row["runs"], row["behind"], row["taken"]) for row in listed] == [("s", 2, 3, 2)]


async def test_signals_of_a_subscriber_that_died_are_delivered_again_after_its_lease(kernel: Kernel) -> None:
    await subscribe(kernel)
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    assert seqs(await take(kernel, lease=30)) == {"run_a": [1, 2]}
    kernel.wait(20)
    assert await record(kernel, "run_a", 1, lease_seconds=30) == "ok"
    kernel.wait(20)
    assert await take(kernel, "w2") == []
    kernel.wait(11)
    assert seqs(await take(kernel, "w2")) == {"run_a": [2]}
    assert await record(kernel, "run_a", 2) == "stale"
    assert await record(kernel, "run_a", 1, "w2", delay_seconds=60) == "ok"
    assert await take(kernel, "w2") == []
    kernel.wait(61)
    assert seqs(await take(kernel, "w2")) == {"run_a": [2]}


async def test_signals_that_match_no_pattern_raise_the_position_and_ended_runs_are_forgotten(kernel: Kernel) -> None:
    await subscribe(kernel, "s", "workflow:end", "x:**")
    claimed = await kernel.running()
    assert await take(kernel) == []
    assert [row["position"] for row in await kernel.rows("subscription_runs", "position")] == [2]
    await kernel.append(claimed, draft("x:y:z", claimed["activation_id"]))
    assert seqs(await take(kernel)) == {"run_a": [3]}
    assert await record(kernel, "run_a", 3) == "ok"
    await kernel.finish(claimed, ends="success")
    assert seqs(await take(kernel)) == {"run_a": [5]}
    assert await record(kernel, "run_a", 5) == "ok"
    await take_until_left(kernel)


async def test_subscription_begins_now_at_the_start_or_at_an_offset(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running("run_0", "turn_0"), ends="success")
    claimed = await kernel.running()
    offset = {"run_a": 1.0, "run_0": 3}
    for name, since, after in (("now", "now", {}), ("start", "start", {}), ("offset", "now", offset)):
        assert (await subscribe(kernel, name, since=since, after=after))["outcome"] == "subscribed"
    await kernel.append(claimed, draft("x:y", claimed["activation_id"]))
    assert seqs(await take(kernel, name="now")) == {"run_a": [3]}
    found = seqs(await take(kernel, name="start"))  # news first
    assert (found, seqs(await take(kernel, name="start"))) == ({"run_a": [1, 2, 3]}, {})
    assert seqs(await take(kernel, name="start")) == {"run_0": [1, 2, 3, 4]}
    assert seqs(await take(kernel, name="offset")) == {"run_0": [4], "run_a": [2, 3]}


async def test_offsets_that_do_not_exist_are_rejected_by_name_and_nothing_is_written(kernel: Kernel) -> None:
    claimed = await kernel.running()
    kernel.wait(10)
    for after, code, text in (
        ({"run_x": 0}, "unknown_run", "no run run_x in project"),
        ({"run_a": 3}, "unknown_position", "run run_a has 2 signals so far, and no position 3"),
    ):
        answer = await subscribe(kernel, after=after)
        assert (answer["outcome"], answer["code"]) == ("rejected", code)
        assert text in answer["message"]
    await kernel.finish(claimed)
    kernel.wait(10)
    await kernel.publish()
    await kernel.call("prune", kernel.now - timedelta(seconds=5), 100)
    kernel.is_corrupted = True  # the run stays open without work
    assert (await kernel.run("run_a"))["pruned_seq"] == 3
    answer = await subscribe(kernel, after={"run_a": 1})
    assert (answer["code"], answer["message"].partition(": ")[0]) == (
        "pruned_position",
        "the signals of run run_a up to 3 are pruned",
    )
    assert await kernel.call("list_subscriptions", None, 100) == []


async def test_prune_does_not_wait_for_subscribers_which_learn_what_they_missed(kernel: Kernel) -> None:
    await subscribe(kernel)
    claimed = await kernel.running()
    await kernel.finish(claimed)
    await kernel.finish(await kernel.running("run_b", "turn_b"), ends="success")
    kernel.wait(10)
    await kernel.publish()
    await kernel.call("prune", kernel.now - timedelta(seconds=5), 100)
    kernel.is_corrupted = True  # the run stays open without work
    await kernel.react("run_a", (await kernel.run("run_a"))["version"], draft("x:y", "sig_run_a_3"))
    [run] = await take(kernel)
    assert (run["run_id"], run["pruned"], [signal["seq"] for signal in run["signals"]]) == ("run_a", 3, [4])
    assert [row["run_id"] for row in await kernel.rows("subscription_runs", "run_id")] == ["run_a"]


async def test_run_that_commits_late_is_never_missed(kernel: Kernel, beside: Connect) -> None:
    """A subscription waits for starts that have begun; a start that follows finds the subscription."""
    other = await beside()
    transaction = other.connection.transaction()
    await transaction.start()
    await other.start("run_late", ["writer"], {"turn_a": "writer"})
    subscribing = asyncio.create_task(subscribe(kernel, since="now"))
    await asyncio.sleep(0.1)
    assert not subscribing.done()
    await transaction.commit()
    assert (await subscribing)["outcome"] == "subscribed"
    assert [row["run_id"] for row in await kernel.rows("subscription_runs", "run_id")] == ["run_late"]
    transaction = other.connection.transaction()
    await transaction.start()
    await other.start("run_b", ["writer"], {"turn_b": "writer"})
    assert await take(kernel) == []
    await kernel.start("run_c", ["writer"], {"turn_c": "writer"})
    assert seqs(await take(kernel)) == {"run_c": [1, 2]}
    await transaction.commit()
    assert seqs(await take(kernel)) == {"run_b": [1, 2]}


async def test_run_that_is_read_to_its_end_is_not_delivered_again_while_a_transaction_is_in_progress(
    kernel: Kernel, beside: Connect
) -> None:
    await subscribe(kernel)
    other = await beside()
    transaction = other.connection.transaction()
    await transaction.start()
    await other.start("run_late", ["writer"], {"turn_l": "writer"})
    await kernel.finish(await kernel.running(), ends="success")
    for _ in range(3):
        for run in await take(kernel):
            assert (run["run_id"], run["after"]) == ("run_a", 0)
            assert await record(kernel, "run_a", run["upto"]) == "ok"
    assert [row["run_id"] for row in await kernel.rows("subscription_runs", "run_id")] == ["run_a"]
    assert (await kernel.call("list_subscriptions", None, 100))[0]["runs"] == 0  # it is read to its end
    await transaction.commit()
    assert seqs(await take(kernel)) == {"run_late": [1, 2]}
    assert await record(kernel, "run_late", 2) == "ok"
    await take_until_left(kernel, "run_late")


async def test_feed_of_a_database_that_was_restored_on_another_server_is_read_on(kernel: Kernel) -> None:
    await subscribe(kernel)
    await kernel.harm(
        "update subscriptions set next_feed_id = 0, next_xid = '9000000000000000000' where project_id = $1"
    )
    await kernel.finish(await kernel.running(), ends="success")
    for run in await take(kernel):
        assert await record(kernel, "run_a", run["upto"]) == "ok"
    await take_until_left(kernel)


async def test_subscription_since_the_start_enters_older_runs_when_it_has_time(kernel: Kernel) -> None:
    for run in ("run_a", "run_b"):
        await kernel.start(run, ["writer"], {f"turn_{run}": "writer"})
    await subscribe(kernel)
    assert await kernel.rows("subscription_runs", "run_id") == []
    await kernel.start("run_0", ["writer"], {"turn_0": "writer"})
    assert seqs(await take(kernel)) == {"run_0": [1, 2]}
    assert await record(kernel, "run_0", 2) == "ok"
    assert seqs(await take(kernel)) == {}
    assert seqs(await take(kernel)) == {"run_a": [1, 2], "run_b": [1, 2]}
    assert [row["position"] for row in await kernel.rows("subscription_runs", "run_id, position")] == [2, 0, 0]


async def test_one_search_passes_all_runs_without_a_matching_signal(kernel: Kernel) -> None:
    await subscribe(kernel, "s", "x:y")
    for n in range(20):
        await kernel.start(f"run_{n:02}", ["writer"], {f"turn_{n}": "writer"})
    claimed = await kernel.running("run_z", "turn_z")
    await kernel.append(claimed, draft("x:y", claimed["activation_id"]))
    assert seqs(await take(kernel, limit=1)) == {"run_z": [3]}
    assert {row["has_news"] for row in await kernel.rows("subscription_runs") if row["run_id"] != "run_z"} == {False}


async def test_search_returns_when_a_leased_run_is_due(kernel: Kernel) -> None:
    await subscribe(kernel)
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    for seconds in (30, 20, 10):
        answer = await kernel.call("take_signals", "s", "w", 1, 30.0)
        assert answer["due_seconds"] == seconds
        kernel.wait(10)
    assert seqs(await take(kernel)) == {"run_a": [1, 2]}


async def test_search_that_skips_a_run_of_another_transaction_is_repeated(kernel: Kernel, beside: Connect) -> None:
    """The other transaction may have read the log of the run before the commit for which this search was rung."""
    await subscribe(kernel, since="now")
    await take_until_left(kernel)
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    assert seqs(await take(kernel)) == {"run_a": [1, 2]}
    assert await record(kernel, "run_a", 1) == "ok"
    kernel.wait(1)
    # this search reads no news of the run any more
    await kernel.connection.execute(
        "update heliograph.subscriptions set feed_id = (select max(feed_id) from heliograph.run_feed)"
    )
    other = await beside()
    async with other.connection.transaction():
        await other.connection.fetch("select from heliograph.subscription_runs where name = 's' for update")
        answer = await kernel.call("take_signals", "s", "w", 1, 30.0)
        # not at once: the transaction may last, as while a standby that commits wait for is down
        assert (answer["runs"], answer["more"], answer["due_seconds"]) == ([], False, 0.05)
    assert seqs(await take(kernel)) == {"run_a": [2]}
    assert (await kernel.call("take_signals", "s", "w", 1, 30.0))["due_seconds"] == 30


async def test_position_that_a_search_entered_while_prune_deleted_its_run_goes_with_the_next_search(
    kernel: Kernel,
) -> None:
    await subscribe(kernel, since="now")
    await kernel.connection.execute(
        "insert into heliograph.subscription_runs (project_id, name, run_id, position, lease_until) values ($1, 's', 'run_x', 0, $2)",
        kernel.project, kernel.now,
    )  # fmt: skip
    kernel.wait(1)
    answer = await kernel.call("take_signals", "s", "w", 1, 30.0)
    assert (answer["runs"], answer["more"]) == ([], False)
    assert await kernel.rows("subscription_runs") == []


async def test_no_lock_that_another_login_could_take_orders_starts_and_subscriptions(kernel: Kernel) -> None:
    await subscribe(kernel)
    transaction = kernel.connection.transaction()
    await transaction.start()
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await kernel.call("subscribe", "other", ["**"], "start", {})
    assert await take(kernel) != []
    locks = await kernel.connection.fetch(
        "select 1 from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    )
    await transaction.rollback()
    assert locks == []


async def test_signals_of_all_runs_together_are_bounded(kernel: Kernel) -> None:
    await subscribe(kernel, "s", "x:y")
    for run in ("run_a", "run_b", "run_c"):
        claimed = await kernel.running(run, f"turn_{run}")
        large = [draft("x:y", claimed["activation_id"], payload={"t": "x" * 60_000}) for _ in range(60)]
        await kernel.append(claimed, *large)
    answer = await kernel.call("take_signals", "s", "w", 1000, 30.0)
    counts = [len(run["signals"]) for run in answer["runs"]]
    assert (counts[:2], counts[2] < 30) == ([60, 60], True)


@pytest.mark.more  # nine megabytes of signals
async def test_page_is_bounded_and_continues_where_it_ended(kernel: Kernel) -> None:
    await subscribe(kernel, "s", "x:y")
    claimed = await kernel.running()
    large = [draft("x:y", claimed["activation_id"], payload={"n": n, "t": "x" * 60_000}) for n in range(150)]
    await kernel.append(claimed, *large)
    small = [draft("x:y", claimed["activation_id"]) for _ in range(150)]
    await kernel.append(claimed, *small, signals_emitted=150)
    found: list[int] = []
    counts = []
    while runs := await take(kernel):
        [run] = runs
        counts.append(len(run["signals"]))
        found += [signal["seq"] for signal in run["signals"]]
        await record(kernel, "run_a", run["upto"])
    assert found == list(range(3, 303))
    assert max(counts) <= 200
    assert counts[0] < 150


@pytest.mark.parametrize(
    ("name", "patterns", "since", "after", "text"),
    [
        ("x" * 10_000, ["a:b"], "now", {}, "name of a subscription"),
        ("", ["a:b"], "now", {}, "name of a subscription"),
        ("a b'; drop table x", ["a:b"], "now", {}, "name of a subscription"),
        ("s", [], "now", {}, "1 to 100 patterns"),
        ("s", ["a"] * 101, "now", {}, "1 to 100 patterns"),
        ("s", [1], "now", {}, "must be strings"),
        ("s", [""], "now", {}, "a pattern is empty"),
        ("s", ["a:***"], "now", {}, "whole segment"),
        ("s", ["a:b*"], "now", {}, "whole segment"),
        ("s", ["**:a:**:b:**"], "now", {}, "two \\*\\*"),
        ("s", [":".join("a" * 17)], "now", {}, "16 segments"),
        ("s", ["a:b"], "later", {}, "now or start"),
        ("s", ["a:b"], "now", {"run_a": -1}, "positions must be"),
        ("s", ["a:b"], "now", {"run_a": 1.5}, "positions must be"),
        ("s", ["a:b"], "now", [], "positions must be"),
    ],
)  # fmt: skip
async def test_invalid_subscription_is_rejected(
    kernel: Kernel, name: str, patterns: Any, since: str, after: Any, text: str
) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=text):
        await kernel.call("subscribe", name, patterns, since, after)


async def test_unknown_subscriptions_have_no_signals_and_positions_are_checked(kernel: Kernel) -> None:
    assert await kernel.call("take_signals", "s", "w", 1, 1.0) == {"outcome": "unknown"}
    assert await kernel.call("unsubscribe", "s") == {"outcome": "unknown"}
    assert await record(kernel, "run_a", 1) == "stale"
    good = of("s", "w", "r", 1)
    wrong: tuple[Item, ...] = ({"position": 1.5}, {"position": -1}, {"position": None}, {"lease_seconds": -1}, {"run_id": 1}, {"name": 1}, {"subscriber": []},
                 {"other": 1})  # fmt: skip
    for item in wrong:
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await kernel.call("record_positions", [good | item])
    for no_item in ([], [good], 1, None):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="must be an object"):
            await kernel.call("record_positions", [no_item])
    for given in (("s", "w", 0, 1.0), ("s", "w", 1, -1.0), ("s", "", 1, 1.0)):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await kernel.call("take_signals", *given)
    await subscribe(kernel)
    await kernel.call("start_runs", [run_item("run_a", ["writer"], {"turn_a": "writer"})])
    assert await kernel.call("unsubscribe", "s") == {"outcome": "unsubscribed"}
    assert await kernel.rows("subscription_runs") == []
