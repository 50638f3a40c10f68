from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import DELIVERABLE, Connect, Item, Kernel, draft, ending, turn_item
from tests.kernel.waits import begin, defer, wait

NOTE = {"card_id": "card_note", "kind": "note", "content": {"text": "a thought"}}


async def lose(kernel: Kernel) -> Item:
    """A claimed turn that was recovered from its worker, and claimed again by another."""
    claimed = await kernel.running()
    kernel.wait(31)
    assert (await kernel.sweep("leases"))["recovered"] == ["turn_a"]
    return claimed


async def rejected(kernel: Kernel, claimed: Item) -> None:
    """Every gated call of this owner is stale, and writes nothing."""
    before = await kernel.everything()
    spoken = draft("note", claimed["activation_id"], is_pending=True)
    assert (await kernel.append(claimed, spoken, cards=[NOTE], phase="act"))["outcome"] == "stale"
    assert (await kernel.renew(claimed))["outcome"] == "stale"
    assert (await defer(kernel, claimed))["outcome"] == "stale"
    assert [row["outcome"] for row in await kernel.call("release", [turn_item(claimed)])] == ["stale"]
    version = (await kernel.run("run_a"))["version"]
    assert (await kernel.finish(claimed, version=version, wakes={"turn_x": "critic"}))["outcome"] == "stale"
    assert [each["outcome"] for each in await kernel.call("release", [turn_item(claimed)])] == ["stale"]
    deferral = turn_item(claimed, reason="later", delay_seconds=1, deferrals_max=None)
    assert [each["outcome"] for each in await kernel.call("defer", [deferral])] == ["stale"]
    assert await kernel.everything() == before


@pytest.mark.proves("L0-02", "L0-41", "L0-110", "L0-111", "K1", "K2", "K7")
async def test_former_owner_of_a_recovered_turn_writes_nothing_more(kernel: Kernel) -> None:
    late = await lose(kernel)
    await rejected(kernel, late)  # dispatched again, without an owner
    now = await kernel.claim_one(worker="worker-2")
    assert now["epoch"] == late["epoch"] + 2
    await rejected(kernel, late)
    assert (await kernel.finish(now, ends="success"))["outcome"] == "ok"
    await rejected(kernel, late)


@pytest.mark.proves("L0-02", "L0-110", "K6")
@pytest.mark.parametrize("later", [-2, -1, 1])
async def test_heartbeat_under_another_epoch_extends_no_lease(kernel: Kernel, later: int) -> None:
    await lose(kernel)
    now = await kernel.claim_one(worker="worker-2")
    before = await kernel.head("run_a/writer")
    kernel.wait(5)  # at the moment of the claim, a renewal would write the lease that is there
    assert (await kernel.renew(now | {"epoch": now["epoch"] + later}, lease=600, phase="act"))["outcome"] == "stale"
    assert await kernel.head("run_a/writer") == before
    assert (await kernel.renew(now, lease=600))["outcome"] == "ok"
    assert (await kernel.head("run_a/writer"))["lease_until"] > before["lease_until"]


@pytest.mark.proves("L0-02", "K6")
@pytest.mark.parametrize("epoch", [-1, 0, 1, 3, 2**63 - 1])
async def test_every_epoch_except_the_owners_is_rejected(kernel: Kernel, epoch: int) -> None:
    claimed = await kernel.running()
    await rejected(kernel, claimed | {"epoch": epoch})


@pytest.mark.proves("L0-02")
@pytest.mark.parametrize(
    "wrong", [{"turn_id": "turn_x"}, {"agent_id": "run_a/critic"}, {"agent_id": "run_x/y"}], ids=str
)
async def test_every_turn_and_agent_except_the_owners_is_rejected(kernel: Kernel, wrong: Item) -> None:
    claimed = await kernel.running()
    await rejected(kernel, claimed | wrong)


@pytest.mark.proves("L0-11", "L0-45")
async def test_dispatched_turn_has_no_owner_yet(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"})
    await rejected(kernel, {"agent_id": "run_a/writer", "turn_id": "turn_a", "epoch": 1, "agent": "writer",
                           "activation_id": "sig_run_a_2"})  # fmt: skip


async def test_queued_turn_has_no_owner_even_under_the_epoch_of_its_agent(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")
    await rejected(kernel, claimed | {"turn_id": "turn_2"})


@pytest.mark.proves("K2")
async def test_repeated_call_writes_its_card_once(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert (await kernel.append(claimed, cards=[NOTE]))["outcome"] == "ok"
    before = await kernel.everything()
    kernel.wait(1)
    assert (await kernel.append(claimed, cards=[NOTE]))["outcome"] == "ok"
    assert await kernel.everything() == before
    (card,) = await kernel.rows("card_overview", "position, card_id, kind, turn_epoch, content, box_id")
    assert tuple(card)[1:] == ("card_note", "note", claimed["epoch"], NOTE["content"], claimed["output_box_id"])


async def test_append_after_a_lost_reply_returns_the_same_without_writing(kernel: Kernel) -> None:
    claimed = await kernel.running()
    parent = claimed["activation_id"]
    first = await kernel.append(claimed, draft("text:delta", parent), draft("text:delta", 0))
    assert first == {"turn_id": "turn_a", "outcome": "ok", "first_seq": 3}
    await kernel.enqueue("run_a", "critic", "turn_2")  # others speak in between
    before = await kernel.everything()
    again = await kernel.append(claimed, draft("text:delta", parent), draft("text:delta", 0))
    assert again == first
    assert await kernel.everything() == before
    assert (await kernel.append(claimed, draft("text:delta", "sig_run_a_3"), signals_emitted=2))["first_seq"] == 7


@pytest.mark.proves("G-69")
async def test_append_without_signals_changes_only_the_phase(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert (await kernel.append(claimed, phase="act"))["outcome"] == "ok"
    assert (await kernel.head("run_a/writer"))["phase"] == "act"
    assert await kernel.names("run_a") == ["workflow:start", "agent:activated"]


@pytest.mark.proves("SIG-16", "SIG-61")
async def test_draft_names_an_earlier_draft_of_its_call_as_parent(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.append(claimed, draft("tool:call", claimed["activation_id"]), draft("tool:result", 0))
    rows = await kernel.rows("signal_log", "seq, parent, turn_id", "seq > 2")
    assert [tuple(row) for row in rows] == [(3, "sig_run_a_2", "turn_a"), (4, "sig_run_a_3", "turn_a")]


@pytest.mark.proves("L0-70", "K1")
async def test_only_an_ending_writes_a_deliverable(kernel: Kernel) -> None:
    claimed = await kernel.running()
    with pytest.raises(asyncpg.CheckViolationError, match="cards_check"):
        await kernel.append(claimed, cards=[NOTE, NOTE | {"card_id": "card_end", "kind": DELIVERABLE}])
    assert await kernel.rows("cards") == []


async def test_renewal_extends_the_lease_from_now(kernel: Kernel) -> None:
    claimed = await kernel.running()
    kernel.wait(20)
    assert await kernel.renew(claimed, lease=60, phase="act") == {"turn_id": "turn_a", "outcome": "ok"}
    head = await kernel.head("run_a/writer")
    assert (head["lease_until"], head["phase"]) == (kernel.now + timedelta(seconds=60), "act")
    assert head["turn_epoch"] == claimed["epoch"]
    kernel.wait(59)
    assert (await kernel.sweep("leases"))["recovered"] == []


async def test_expired_lease_without_a_sweep_may_be_renewed(kernel: Kernel) -> None:
    claimed = await kernel.running()
    kernel.wait(31)
    assert (await kernel.renew(claimed))["outcome"] == "ok"
    assert (await kernel.sweep("leases"))["recovered"] == []


async def test_heartbeat_renews_owned_turns_and_returns_the_lost_ones(kernel: Kernel) -> None:
    late = await lose(kernel)
    now = await kernel.claim_one()
    other = await kernel.running("run_b", "turn_b")
    items = [turn_item(each) for each in (late, other, now, now | {"turn_id": "turn_x"})]
    answers = await kernel.call("renew", items, 30.0)
    assert [(each["turn_id"], each["outcome"]) for each in answers] == [
        ("turn_a", "stale"), ("turn_b", "ok"), ("turn_a", "ok"), ("turn_x", "stale"),
    ]  # fmt: skip


@pytest.mark.proves("L0-07", "G-60")
async def test_finish_whose_reply_was_lost_is_a_duplicate_and_changes_nothing(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.finish(claimed, wakes={"turn_c": "critic"})
    before = await kernel.everything()
    kernel.wait(1)
    again = await kernel.finish(claimed, wakes={"turn_d": "critic"})
    assert again == {"turn_id": "turn_a", "outcome": "duplicate", "targets": []}
    assert await kernel.everything() == before


@pytest.mark.proves("L0-110")
async def test_another_owners_deliverable_for_a_finished_turn_is_stale(kernel: Kernel) -> None:
    late = await lose(kernel)
    await kernel.finish(await kernel.claim_one(), wakes={"turn_c": "critic"})
    before = await kernel.everything()
    (answer,) = await kernel.call("finish", [ending(late)])
    assert answer["outcome"] == "stale"
    assert await kernel.everything() == before


@pytest.mark.parametrize("function", ["append", "finish"])
async def test_one_stale_item_does_not_disturb_the_others_of_its_call(kernel: Kernel, function: str) -> None:
    late = await lose(kernel)
    other = await kernel.running("run_b", "turn_b")
    make: Any = {"append": turn_item, "finish": lambda c: ending(c, wakes={f"next_{c['turn_id']}": "critic"})}[function]
    answers = await kernel.call(function, [make(late), make(other)])
    assert [(each["turn_id"], each["outcome"]) for each in answers] == [("turn_a", "stale"), ("turn_b", "ok")]


@pytest.mark.proves("L0-41")
async def test_fencing_compares_epochs_and_takes_no_lock_between_calls(kernel: Kernel, beside: Connect) -> None:
    claimed = await kernel.running()
    other = await beside()
    async with other.connection.transaction():  # the owner's session holds nothing, so that this does not wait
        rows = await other.connection.fetch(
            "select from heliograph.agent_state_head where project_id = $1 for update nowait", kernel.project
        )
        assert len(rows) == 2
    other.now = kernel.now
    assert (await other.append(claimed, draft("note", claimed["activation_id"])))["outcome"] == "ok"  # any session may
    before = await kernel.everything()
    assert (await kernel.append(claimed | {"epoch": claimed["epoch"] + 1}))[
        "outcome"
    ] == "stale"  # as long as it matches
    assert await kernel.everything() == before


@pytest.mark.proves("L0-02", "K13")
@pytest.mark.parametrize("first", ["stale", "rejected"])
async def test_result_is_recorded_although_an_earlier_item_of_the_batch_for_the_same_call_is_not(
    kernel: Kernel, first: str
) -> None:
    """A process may still run a turn that it has lost and claimed again, and its calls are combined in one batch."""
    await kernel.call("set_limits", {"result_bytes_max": 1000})
    owners = [await lose(kernel), await kernel.claim_one()]
    results: list[Any] = [1, 2]
    if first == "rejected":
        owners, results = [owners[1]] * 2, ["x" * 1000, 2]
    assert (await begin(kernel, owners[1], "c1"))["outcome"] == "fresh"
    items = [
        turn_item(owner, call_id="c1", status="success", result=value)
        for owner, value in zip(owners, results, strict=True)
    ]
    answers = await kernel.call("record_call", [*items, items[1]])
    assert [answer["outcome"] for answer in answers] == [first, "ok", "duplicate"]
    assert (await wait(kernel, "turn_a", "c1"))["status"] == "success"
    assert (await begin(kernel, owners[1], "c1"))["content"]["output"] == 2
