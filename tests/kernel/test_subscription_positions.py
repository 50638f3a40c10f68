"""Positions that subscribers record, and the list of subscriptions, which counts what follows these positions."""

from __future__ import annotations

import asyncpg
import pytest

from tests.kernel.kit import Kernel, draft, run_item
from tests.kernel.test_subscriptions import of, record, seqs, subscribe, take


async def test_positions_beyond_the_taken_signals_are_rejected_and_change_nothing(kernel: Kernel) -> None:
    """Also those that the log has by now: the subscriber has not received these signals."""
    await subscribe(kernel)
    claimed = await kernel.running()
    other = run_item("run_b", ["writer"], {"turn_b": "writer"})
    await kernel.call("start_runs", [other])
    assert seqs(await take(kernel)) == {"run_a": [1, 2], "run_b": [1, 2]}
    await kernel.append(claimed, draft("x:y", claimed["activation_id"]))
    before = await kernel.rows("subscription_runs", "run_id")
    for position in (3, 4.0, 9_000_000_000_000_000):
        items = [of("s", "w1", run, position) for run in ("run_a", "run_c")]
        wrong, gone = await kernel.call("record_positions", items)
        assert (wrong["outcome"], wrong["code"]) == ("rejected", "unknown_position")
        problem = f"s has taken the signals of run run_a up to 2, so it cannot have processed {position:.0f}"
        assert problem in wrong["message"]
        assert gone == {"run_id": "run_c", "outcome": "stale"}
    assert await kernel.rows("subscription_runs", "run_id") == before
    items = [of("s", "w1", "run_a", 1, lease_seconds=30), of("s", "w1", "run_b", 3)]
    kept, wrong = await kernel.call("record_positions", items)
    assert (kept["outcome"], wrong["outcome"]) == ("ok", "rejected")
    assert await record(kernel, "run_a", 2) == "ok"
    assert seqs(await take(kernel)) == {"run_a": [3]}


async def test_one_call_records_for_several_subscriptions_in_the_order_of_its_items(kernel: Kernel) -> None:
    for name in ("s1", "s2"):
        await subscribe(kernel, name, since="now")
    for run in ("run_a", "run_b"):
        await kernel.start(run, ["writer"], {f"turn_{run}": "writer"})
    for name in ("s1", "s2"):
        assert seqs(await take(kernel, f"w_{name}", name=name)) == {"run_a": [1, 2], "run_b": [1, 2]}
    kernel.wait(20)
    items = [of("s2", "w_s2", "run_b", 1, lease_seconds=30), of("s1", "w_s1", "run_a", 0, lease_seconds=30),
             of("s1", "w_s2", "run_b", 2), of("s2", "w_s2", "run_a", 3, lease_seconds=30), of("s1", "w_s1", "run_b", 2)]  # fmt: skip
    rows = await kernel.call("record_positions", items)
    assert [row["outcome"] for row in rows] == ["ok", "ok", "stale", "rejected", "ok"]
    kernel.wait(11)
    assert await take(kernel, name="s1") == []
    assert seqs(await take(kernel, name="s2")) == {"run_a": [1, 2]}
    kernel.wait(20)
    assert seqs(await take(kernel, name="s1")) == {"run_a": [1, 2]}
    assert seqs(await take(kernel, name="s2")) == {"run_b": [2]}


async def test_several_items_that_keep_one_run_have_one_result(kernel: Kernel) -> None:
    await subscribe(kernel, since="now")
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    for positions in ((2, 1), (1, 2)):
        assert seqs(await take(kernel)) in ({"run_a": [1, 2]}, {"run_a": [2]})
        seconds = iter((30, 40))
        items = [of("s", "w1", "run_a", position, lease_seconds=next(seconds)) for position in positions]
        assert [row["outcome"] for row in await kernel.call("record_positions", items)] == ["ok", "ok"]
        [row] = await kernel.rows("subscription_runs")
        assert (row["position"], (row["lease_until"] - kernel.now).total_seconds()) == (2, 40)
        await kernel.connection.execute("update heliograph.subscription_runs set position = 1")
        kernel.wait(41)
    assert seqs(await take(kernel)) == {"run_a": [2]}


async def test_items_that_keep_and_release_one_run_have_one_result_in_any_order(kernel: Kernel) -> None:
    await subscribe(kernel, since="now")
    claimed = await kernel.running()
    await kernel.append(claimed, *(draft("x:y", claimed["activation_id"]) for _ in range(60)))
    for released in (0, 30, 59):
        assert len(await take(kernel)) == 1
        items = [
            of("s", "w1", "run_a", n, **({"delay_seconds": 5} if n == released else {"lease_seconds": 30}))
            for n in range(60)
        ]
        assert {row["outcome"] for row in await kernel.call("record_positions", items)} == {"ok"}
        [row] = await kernel.rows("subscription_runs")
        assert (row["position"], row["subscriber"]) == (59, None)
        assert (row["lease_until"] - kernel.now).total_seconds() == 5
        await kernel.connection.execute("update heliograph.subscription_runs set position = 0")
        kernel.wait(6)


@pytest.mark.parametrize("field", ["lease_seconds", "delay_seconds"])
async def test_seconds_too_small_for_a_number_count_as_zero(kernel: Kernel, field: str) -> None:
    await subscribe(kernel, since="now")
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await take(kernel)
    [row] = await kernel.connection.fetchval(
        "select heliograph.record_positions($1, jsonb_build_array(jsonb_build_object('name', 's', 'subscriber', 'w1', 'run_id', 'run_a',"
        " 'position', 1, $2::text, 1e-400)), $3)", kernel.project, field, kernel.now,
    )  # fmt: skip
    assert row["outcome"] == "ok"
    assert seqs(await take(kernel)) == {"run_a": [2]}


async def test_list_of_subscriptions_has_pages_and_reads_a_part_of_many_runs(kernel: Kernel) -> None:
    for name in ("s1", "s2", "s3"):
        await subscribe(kernel, name, since="now")
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await take(kernel, name="s1")
    first = await kernel.call("list_subscriptions", None, 2)
    assert [row["name"] for row in first] == ["s1", "s2"]
    assert (first[0]["runs"], first[0]["behind"], first[0]["taken"], first[0]["is_partial"]) == (1, 2, 1, False)
    assert [row["name"] for row in await kernel.call("list_subscriptions", "s2", 2)] == ["s3"]
    for limit in (0, 1001, None):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="limit must be between 1 and 1000"):
            await kernel.call("list_subscriptions", None, limit)
    kernel.is_corrupted = True  # these runs have no log
    await kernel.harm(
        """insert into runs select (r).* from (select jsonb_populate_record(r, jsonb_build_object('run_id', 'run_' || n)) as r
           from runs r cross join generate_series(1, 1500) n where project_id = $1 and run_id = 'run_a') x"""
    )
    await kernel.harm(
        """insert into subscription_runs (project_id, name, run_id, position, has_news, lease_until)
           select project_id, 's1', run_id, 0, true, 'epoch' from runs where project_id = $1 and run_id <> 'run_a'"""
    )
    [many] = await kernel.call("list_subscriptions", None, 1)
    assert many["is_partial"]
    assert many["taken"] == 1
    assert 1000 <= many["runs"] <= 2000
    assert many["behind"] == 2 * many["runs"]
