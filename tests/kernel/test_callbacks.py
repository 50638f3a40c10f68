"""Callbacks: written in the commit of an end, taken by one worker, retried, dead, and redelivered."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from tests.kernel.kit import Item, Kernel, draft, run_item
from tests.kernel.waits import activated, child, suspended

URL = "https://hooks.example/x"


async def due(kernel: Kernel, limit: int = 10, hidden: float = 30.0) -> list[Item]:
    taken: list[Item] = await kernel.call("take_callbacks", limit, hidden)
    return taken


async def record(
    kernel: Kernel, taken: Item, outcome: str, again: float | None = None, error: str | None = None
) -> str:
    item = {"callback_id": taken["callback_id"], "attempt": taken["attempt"], "state": outcome, "again_seconds": again,
            "error": error}  # fmt: skip
    (answer,) = await kernel.call("record_callbacks", [item])
    return str(answer["outcome"])


async def stored(kernel: Kernel) -> tuple[str, int, str | None]:
    (row,) = await kernel.rows("callback_overview")
    return row["state"], row["attempts"], row["last_error"]


async def claimed_with_callback(kernel: Kernel, **fields: Any) -> Item:
    """A turn with a callback, claimed."""
    await kernel.start("run_a", ["writer"], {})
    answer = await kernel.enqueue("run_a", "writer", "turn_a", callback_url=URL, **fields)
    assert answer["outcome"] == "queued"
    return await kernel.claim_one()


@pytest.mark.proves("CTL-23", "G-23")
async def test_callback_of_a_turn_exists_from_its_end(kernel: Kernel) -> None:
    claimed = await claimed_with_callback(kernel)
    assert await due(kernel) == []
    kernel.wait(2)
    version = (await kernel.run("run_a"))["version"]
    await kernel.finish(claimed, version=version, ends="success")
    (taken,) = await due(kernel)
    assert {**taken, "callback_id": None} == {
        "callback_id": None, "url": URL, "attempt": 1, "run_id": "run_a", "turn_id": "turn_a", "agent": "writer", "call_id": None,
        "correlation_id": None,
        "outcome": "success", "content": {"text": "done"}, "card_id": "card:turn_a:end", "duration_ms": 2000,
        "trace": {},
    }  # fmt: skip
    assert await due(kernel) == []  # another worker has taken it


@pytest.mark.proves("CTL-23")
async def test_end_by_the_kernel_is_sent_to_its_callback(kernel: Kernel) -> None:
    await claimed_with_callback(kernel)
    await kernel.stop("turn_a")
    (taken,) = await due(kernel)
    assert (taken["outcome"], taken["content"]["error"]["code"]) == ("canceled", "CANCELED")


@pytest.mark.proves("CTL-23")
async def test_child_and_a_run_have_callbacks_of_their_own(kernel: Kernel) -> None:
    await kernel.call(
        "start_runs", [{**run_item("run_a", ["writer", "critic"], {"turn_a": "writer"}), "callback_url": URL}]
    )
    parent = await kernel.claim_one()
    calls = [child("c1", "critic", "turn_1", callback_url=f"{URL}/child")]
    await kernel.call("suspend", [{**{k: parent[k] for k in ("agent_id", "turn_id", "epoch")}, "signals_emitted": 0,
                                   "signals": activated("critic"), "calls": calls}])  # fmt: skip
    await kernel.finish(await kernel.claim_one(), version=(await kernel.run("run_a"))["version"])
    (taken,) = await due(kernel)
    assert (taken["url"], taken["call_id"], taken["agent"]) == (f"{URL}/child", "c1", "critic")
    await kernel.sweep("reports")
    version = (await kernel.run("run_a"))["version"]
    await kernel.finish(await kernel.claim_one(), version=version, ends="success", state={"n": 1})
    (stored_callback,) = await due(kernel)
    assert (
        stored_callback["url"],
        stored_callback["turn_id"],
        stored_callback["outcome"],
        stored_callback["content"],
    ) == (URL, None, "success", {"n": 1})


async def test_run_that_ends_at_its_start_is_sent_to_its_callback(kernel: Kernel) -> None:
    item = run_item("run_a", ["writer"], {})
    item["reaction"] |= {"status": "ended", "outcome": "success"}
    item["signals"].append(draft("workflow:end", 0))
    await kernel.call("start_runs", [{**item, "callback_url": URL}])
    assert [taken["outcome"] for taken in await due(kernel)] == ["success"]


@pytest.mark.proves("S15")
async def test_failed_attempt_is_retried_under_the_same_id_until_the_callback_is_dead(
    kernel: Kernel,
) -> None:
    await claimed_with_callback(kernel)
    await kernel.stop("turn_a")
    (first,) = await due(kernel)
    assert await record(kernel, first, "failed", 10.0, "answered 503") == "ok"
    assert await stored(kernel) == ("due", 1, "answered 503")
    kernel.wait(9)
    assert await due(kernel) == []
    kernel.wait(1)
    (second,) = await due(kernel)
    assert (second["callback_id"], second["attempt"]) == (first["callback_id"], 2)
    assert await record(kernel, first, "delivered") == "stale"
    assert await record(kernel, second, "failed", None, "answered 410") == "ok"
    assert await stored(kernel) == ("dead", 2, "answered 410")
    kernel.wait(1e6)
    assert await due(kernel) == []
    assert await kernel.call("redeliver_callbacks", [first["callback_id"], "callback_none"]) == [
        {"callback_id": first["callback_id"], "outcome": "due"}, {"callback_id": "callback_none", "outcome": "unknown_callback"},
    ]  # fmt: skip
    (third,) = await due(kernel)
    assert (third["callback_id"], third["attempt"]) == (first["callback_id"], 1)
    assert await record(kernel, third, "delivered") == "ok"
    assert await stored(kernel) == ("delivered", 1, None)


async def test_attempt_of_a_dead_worker_is_retried_by_another(kernel: Kernel) -> None:
    await claimed_with_callback(kernel)
    await kernel.stop("turn_a")
    await due(kernel, hidden=30.0)
    kernel.wait(30)
    assert [taken["attempt"] for taken in await due(kernel)] == [2]


@pytest.mark.proves("S11")
async def test_turn_with_an_open_callback_is_not_pruned(kernel: Kernel) -> None:
    claimed = await claimed_with_callback(kernel)
    version = (await kernel.run("run_a"))["version"]
    await kernel.finish(claimed, version=version, ends="success")
    await kernel.publish()
    kernel.wait(100)
    before = kernel.now
    kernel.wait(1)
    assert (await kernel.call("prune", before, 100))["turns"] == 0
    (taken,) = await due(kernel)
    await record(kernel, taken, "delivered")
    assert (await kernel.call("prune", before, 100))["turns"] == 1
    assert await kernel.rows("callbacks") == []


@pytest.mark.proves("S11", "S15")
async def test_callback_unattempted_for_too_long_is_dead_and_its_turn_prunable(kernel: Kernel) -> None:
    claimed = await claimed_with_callback(kernel)
    await kernel.finish(claimed, version=(await kernel.run("run_a"))["version"], ends="success")
    await kernel.publish()
    kernel.wait(99)
    assert await kernel.call("sweep_callbacks", 10, 100.0) == {"abandoned": []}
    before = kernel.now
    kernel.wait(1)
    assert (await kernel.call("prune", before, 100))["turns"] == 0
    answer = await kernel.call("sweep_callbacks", 10, 100.0)
    (row,) = await kernel.rows("callback_overview")
    assert (answer, row["state"], row["attempts"]) == ({"abandoned": [row["callback_id"]]}, "dead", 0)
    assert row["last_error"] == "not tried in time: no worker had HELIOGRAPH_WEBHOOK_SECRETS"
    assert (await kernel.call("sweep_callbacks", None, 0.0), await due(kernel)) == ({"abandoned": []}, [])
    assert (await kernel.call("prune", before, 100))["turns"] == 1


async def test_callback_before_its_next_attempt_is_not_abandoned_and_redelivery_restarts_its_time(
    kernel: Kernel,
) -> None:
    await claimed_with_callback(kernel)
    await kernel.stop("turn_a")
    kernel.wait(1000)
    (taken,) = await due(kernel)
    await record(kernel, taken, "failed", 500.0, "answered 503")
    kernel.wait(599)
    assert await kernel.call("sweep_callbacks", 10, 100.0) == {"abandoned": []}
    kernel.wait(1)
    assert (await kernel.call("sweep_callbacks", 10, 100.0))["abandoned"] == [taken["callback_id"]]
    (row,) = await kernel.rows("callback_overview")
    why = "answered 503; not tried again in time: no worker had HELIOGRAPH_WEBHOOK_SECRETS"
    assert (row["state"], row["attempts"], row["last_error"]) == ("dead", 1, why)
    await kernel.call("redeliver_callbacks", [taken["callback_id"]])
    kernel.wait(99)
    assert await kernel.call("sweep_callbacks", 10, 100.0) == {"abandoned": []}
    assert [again["attempt"] for again in await due(kernel)] == [1]


async def test_callback_is_not_abandoned_while_workers_attempt_others(kernel: Kernel) -> None:
    await claimed_with_callback(kernel)
    await kernel.enqueue("run_a", "writer", "turn_b", callback_url=URL)
    for turn in ("turn_a", "turn_b"):
        await kernel.stop(turn)
    kernel.wait(1000)
    [taken] = await kernel.call("take_callbacks", 1, 60.0)
    assert await kernel.call("sweep_callbacks", 10, 100.0) == {"abandoned": []}
    await record(kernel, taken, "delivered")
    assert len((await kernel.call("sweep_callbacks", 10, 100.0))["abandoned"]) == 1


@pytest.mark.parametrize(("limit", "older"), [(-1, 0.0), (1, -1.0), (1, None), (1, 4e7)])
async def test_sweep_of_callbacks_with_an_invalid_number_is_rejected(
    kernel: Kernel, limit: int, older: float | None
) -> None:
    with pytest.raises(asyncpg.DataError, match="must be"):
        await kernel.call("sweep_callbacks", limit, older)


@pytest.mark.parametrize("url", ["gopher://x", "", 7, "https://a b", "https://x/" + "a" * 2000, "https://x\n"])
async def test_invalid_url_is_rejected_by_name(kernel: Kernel, url: Any) -> None:
    await kernel.start("run_a", ["writer"], {"turn_0": "writer"})
    with pytest.raises(asyncpg.DataError, match="callback_url must begin with https://"):
        await kernel.enqueue("run_a", "writer", "turn_a", callback_url=url)
    with pytest.raises(
        (asyncpg.DataError, KernelRejected), match=r"callback_url (must begin with https://|has the type text)"
    ):
        await kernel.call("start_runs", [{**run_item("run_b", ["writer"], {}), "callback_url": url}])
    with pytest.raises(asyncpg.DataError, match="callback_url must begin with https://"):
        await suspended(kernel, child("c1", "critic", "turn_1", callback_url=url), run_id="run_c", turn_id="turn_c",
                        signals=activated("critic"))  # fmt: skip


async def test_message_with_another_callback_is_another_message(kernel: Kernel) -> None:
    await claimed_with_callback(kernel)
    again = [await kernel.enqueue("run_a", "writer", "turn_a", callback_url=url) for url in (URL, f"{URL}/other", None)]
    assert [answer["outcome"] for answer in again] == ["duplicate", "conflict", "conflict"]


async def test_two_projects_have_two_ids_for_callbacks_of_the_same_turn(kernel: Kernel) -> None:
    ids: Any = await kernel.connection.fetchrow(
        "select heliograph._callback_id('a', 'turn:t') as a, heliograph._callback_id('b', 'turn:t') as b"
    )
    assert ids["a"] != ids["b"]
    assert ids["a"].removeprefix("callback_").isalnum()
