"""Graceful stops of turns that do not run, but terminate: a worker claims them, and has the grace for their terminate phase."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from tests.kernel.kit import TARGET, Item, Kernel, turn_item
from tests.kernel.test_stop import stopped
from tests.kernel.waits import (
    TOKEN,
    activated,
    child,
    command,
    defer,
    record,
    report,
    reported,
    status,
    suspend,
    suspended,
)

REASON = {"reason": "enough", "actor": "ann"}


async def released(kernel: Kernel, how: str) -> Item:
    """Bring turn_a, which terminates, into a state without an owner. Return the claim of its last owner."""
    if how == "deferred":
        claimed = await kernel.running()
        assert (await defer(kernel, claimed, 3600, terminates=True))["outcome"] == "deferred"
        return claimed
    claimed = await suspended(kernel, command("c1"), terminates=True)
    if how == "dispatched":
        await report(kernel, "turn_a", "c1", token=TOKEN)
    return claimed


@pytest.mark.proves("K12", "LC-65", "CTL-39", "L0-87")
@pytest.mark.parametrize("how", ["suspended", "deferred", "dispatched"])
async def test_graceful_stop_lets_a_worker_claim_a_turn_that_terminates(kernel: Kernel, how: str) -> None:
    earlier = await released(kernel, how)
    kernel.wait(1)
    answer = await kernel.stop("turn_a", "graceful", **REASON)
    force_at, woken = kernel.now + timedelta(seconds=10), how != "dispatched"
    assert answer == {
        "turn_id": "turn_a", "outcome": "stopping", "force_at": force_at.isoformat(), "targets": [TARGET] if woken else [],
        **({"woken": ["run_a/writer"]} if woken else {}),
    }  # fmt: skip
    assert await kernel.checks() == []
    claimed = await kernel.claim_one()
    assert (claimed["turn_id"], claimed["stop"]["reason"]) == ("turn_a", "enough")
    assert claimed["epoch"] > earlier["epoch"]
    types = [row["message_type"] for row in claimed["inbox"]]
    assert "stop" in types
    assert (await kernel.renew(claimed))["stop"]["reason"] == "enough"
    assert await kernel.checks() == []
    assert (await kernel.finish(claimed, outcome="canceled", ends="canceled"))["outcome"] == "ok"
    (halt,) = await kernel.rows("signal_log", "payload", "name = 'halt'")
    assert halt["payload"] == {"reason": "enough", "graceful": True, "actor": "ann"}
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["terminates"], head["force_at"]) == ("idle", False, None)
    assert {row["state"] for row in await kernel.rows("turn_waiting_tools", "state")} <= {"closed", "resolved"}
    await kernel.publish()
    assert await kernel.checks(quiescent=True) == []


@pytest.mark.proves("LC-65")
@pytest.mark.parametrize("how", ["suspended", "deferred", "dispatched"])
async def test_forced_stop_ends_a_turn_that_terminates_at_once(kernel: Kernel, how: str) -> None:
    await released(kernel, how)
    assert (await kernel.stop("turn_a", "force", **REASON))["outcome"] == "stopped"
    await stopped(kernel)


@pytest.mark.proves("G-08")
async def test_turn_that_no_worker_claims_in_its_grace_is_forced(kernel: Kernel) -> None:
    await released(kernel, "suspended")
    await kernel.stop("turn_a", "graceful", grace_seconds=5, reason="enough")
    kernel.wait(4.999)
    assert (await kernel.sweep("stops"))["stopped"] == []
    kernel.wait(0.001)
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_a"]
    assert (await stopped(kernel))["reason"] == "enough"


async def test_second_graceful_stop_keeps_the_earlier_end_and_is_noted_once(kernel: Kernel) -> None:
    await released(kernel, "suspended")
    first = await kernel.stop("turn_a", "graceful", grace_seconds=5)
    second = await kernel.stop("turn_a", "graceful", grace_seconds=50)
    assert (second["outcome"], second["force_at"], second["targets"]) == ("stopping", first["force_at"], [])
    assert len(await kernel.rows("signal_log", "name", "name = 'halt'")) == 1
    await kernel.stop("turn_a", "force")
    await stopped(kernel)


@pytest.mark.proves("L0-111")
@pytest.mark.parametrize("how", ["a lease that ends", "a release"])
async def test_another_worker_repeats_the_terminate_phase_within_the_grace(kernel: Kernel, how: str) -> None:
    await released(kernel, "suspended")
    await kernel.stop("turn_a", "graceful", grace_seconds=60)
    claimed = await kernel.claim_one()
    if how == "a release":
        (answer,) = await kernel.call("release", [turn_item(claimed)])
        assert answer["outcome"] == "ok"
    else:
        kernel.wait(30)
        assert (await kernel.sweep("leases"))["recovered"] == ["turn_a"]
    again = await kernel.claim_one()
    assert again["stop"] == claimed["stop"]
    kernel.wait(60)
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_a"]
    await stopped(kernel)


@pytest.mark.proves("LC-65", "L0-111")
@pytest.mark.parametrize("phase", ["init", "plan"])
@pytest.mark.parametrize("how", ["stopped, then lost", "lost, then stopped", "released, then stopped"])
async def test_recorded_phase_of_a_turn_that_terminates_is_enough_for_its_grace(
    kernel: Kernel, how: str, phase: str
) -> None:
    claimed = await kernel.running()
    ended: Item = {"phase": phase, "open_as": {"step_id": "init", "tool": "init"}, "terminates": True}
    assert (await record(kernel, claimed, "init", **ended))["outcome"] == "ok"
    if how == "stopped, then lost":
        assert (await kernel.stop("turn_a", "graceful", grace_seconds=60))["outcome"] == "stopping"
    if how == "released, then stopped":
        await kernel.call("release", [turn_item(claimed)])
    else:
        kernel.wait(31)
        assert (await kernel.sweep("leases"))["recovered"] == ["turn_a"]
    if how != "stopped, then lost":
        assert (await kernel.stop("turn_a", "graceful", grace_seconds=60))["outcome"] == "stopping"
    assert await kernel.checks() == []
    assert "stop" in await kernel.claim_one()


@pytest.mark.proves("LC-65")
async def test_recorded_phase_of_a_turn_that_does_not_terminate_gives_it_no_grace(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for terminates in ({}, {"terminates": False}):
        ended: Item = {"phase": "plan", "open_as": {"step_id": "init", "tool": "init"}, **terminates}
        await record(kernel, claimed, f"init-{len(terminates)}", **ended)
    await kernel.call("release", [turn_item(claimed)])
    assert (await kernel.stop("turn_a", "graceful"))["outcome"] == "stopped"


async def test_stopping_turn_ends_as_canceled_after_its_last_attempt(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"), limits={"max_attempts": 1}, terminates=True)
    await kernel.stop("turn_a", "graceful", grace_seconds=600)
    await kernel.claim_one()
    kernel.wait(30)
    assert (await kernel.sweep("leases"))["ended"] == ["turn_a"]
    await stopped(kernel)


@pytest.mark.proves("LC-65")
@pytest.mark.parametrize("how", ["suspend", "defer"])
async def test_owner_that_would_release_a_stopping_turn_keeps_it_for_its_terminate_phase(
    kernel: Kernel, how: str
) -> None:
    claimed = await kernel.running()
    await kernel.stop("turn_a", "graceful", reason="enough")
    before = await kernel.everything()
    answer = await (
        suspend(kernel, claimed, command("c1"), terminates=True)
        if how == "suspend"
        else defer(kernel, claimed, terminates=True)
    )
    assert (answer["outcome"], answer["stop"]["reason"]) == ("stopping", "enough")
    assert await kernel.everything() == before
    assert (await kernel.finish(claimed, outcome="canceled", ends="canceled"))["outcome"] == "ok"


async def test_results_that_come_to_a_stopping_turn_are_delivered_with_its_claim(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"), command("c2"), terminates=True)
    await kernel.stop("turn_a", "graceful")
    assert await reported(kernel, "turn_a", "c1", token=TOKEN) == "applied"
    assert await status(kernel) == "dispatched"
    claimed = await kernel.claim_one()
    assert {wait["call_id"]: wait["state"] for wait in claimed["waits"]} == {"c1": "resolved", "c2": "open"}
    assert await reported(kernel, "turn_a", "c2", token=TOKEN) == "applied"


@pytest.mark.proves("CTL-35", "CTL-39")
async def test_stop_of_a_run_gives_grace_to_its_turns_that_terminate(kernel: Kernel) -> None:
    await suspended(kernel, child("c1", "critic", "turn_b"), signals=activated("critic"), terminates=True)
    waiting = await kernel.claim_one()
    await suspend(kernel, waiting, command("c2"), terminates=True)
    await kernel.stop("run_a", "graceful", grace_seconds=20)
    assert sorted((await kernel.sweep("stops"))["stopping"]) == ["turn_a", "turn_b"]
    assert {each["turn_id"] for each in await kernel.claim() if "stop" in each} == {"turn_a", "turn_b"}
    kernel.wait(20)
    await kernel.sweep("stops")
    for turn in ("turn_a", "turn_b"):
        assert (await kernel.turn(turn))["outcome"] == "canceled"


def question(call_id: str) -> Item:
    return {"call_id": call_id, "tool": "ask", "kind": "human", "timeout_seconds": None, "token": TOKEN}


async def test_time_of_waiting_for_humans_is_credited_when_a_stop_resumes_the_turn(kernel: Kernel) -> None:
    await suspended(kernel, question("c1"), limits={"ttl_seconds": 60}, terminates=True)
    kernel.wait(600)
    await kernel.stop("turn_a", "graceful")
    turn = await kernel.turn("turn_a")
    assert (turn["human_wait_since"], turn["expires_at"]) == (None, kernel.now + timedelta(seconds=60))


@pytest.mark.proves("K19")
async def test_time_for_which_open_children_wait_for_humans_is_credited_when_a_stop_resumes_the_turn(
    kernel: Kernel,
) -> None:
    below = child("c1", "critic", "turn_b", ttl_seconds=60)
    await suspended(kernel, below, signals=activated("critic"), limits={"ttl_seconds": 60}, terminates=True)
    kernel.wait(2)
    await suspend(kernel, await kernel.claim_one(), question("c2"))
    kernel.wait(50)
    await kernel.stop("turn_a", "graceful", grace_seconds=30)
    assert (await kernel.turn("turn_a"))["expires_at"] == kernel.now + timedelta(seconds=58)
    claimed = await kernel.claim_one(lease=600)
    kernel.wait(29)
    assert (await kernel.sweep("expired"))["ended"] == []
    assert (await kernel.finish(claimed, outcome="canceled"))["outcome"] == "ok"


@pytest.mark.proves("K12", "K19")
@pytest.mark.parametrize("late", ["unclaimed", "expired"])
async def test_stopping_turn_whose_time_is_over_ends_as_canceled(kernel: Kernel, late: str) -> None:
    if late == "unclaimed":
        await kernel.call("set_limits", {"dispatch_seconds_max": 20})
        await released(kernel, "suspended")
    else:
        await kernel.running(ttl_seconds=20)
    await kernel.stop("turn_a", "graceful", grace_seconds=60, reason="enough")
    await kernel.enqueue("run_a", "writer", "turn_2", ttl_seconds=20)
    kernel.wait(19.999)
    assert (await kernel.sweep("expired"))["ended"] == []
    kernel.wait(0.001)
    assert (await kernel.sweep("expired"))["ended"] == ["turn_a", "turn_2"]
    assert (await stopped(kernel))["reason"] == "enough"
    assert (await kernel.turn("turn_2"))["outcome"] == "timeout"
    assert await kernel.checks() == []


@pytest.mark.proves("K19")
async def test_queued_turn_that_expires_behind_a_stopping_one_does_not_end_it(kernel: Kernel) -> None:
    claimed = await kernel.running(ttl_seconds=600)
    await kernel.stop("turn_a", "graceful", grace_seconds=60)
    await kernel.enqueue("run_a", "writer", "turn_2", ttl_seconds=20)
    kernel.wait(20)
    assert (await kernel.sweep("expired"))["ended"] == ["turn_2"]
    assert (await kernel.turn("turn_2"))["outcome"] == "timeout"
    assert (await kernel.renew(claimed))["outcome"] == "ok"


async def test_next_turn_of_the_agent_does_not_inherit_that_it_terminates(kernel: Kernel) -> None:
    claimed = await suspended(kernel, command("c1"), terminates=True)
    await kernel.stop("turn_a", "graceful")
    again = await kernel.claim_one()
    await kernel.enqueue("run_a", "writer", "turn_2")
    await kernel.finish(again, outcome="canceled", version=(await kernel.run("run_a"))["version"])
    assert again["epoch"] > claimed["epoch"]
    assert (await kernel.stop("turn_2", "graceful"))["outcome"] == "stopped"


@pytest.mark.parametrize("function", ["suspend", "defer", "record_call"])
@pytest.mark.parametrize("value", ["yes", 1, [True]], ids=repr)
async def test_terminates_must_be_a_boolean(kernel: Kernel, function: str, value: object) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    with pytest.raises((asyncpg.InvalidParameterValueError, KernelRejected), match="terminates"):
        await (
            suspend(kernel, claimed, command("c1"), terminates=value)
            if function == "suspend"
            else defer(kernel, claimed, terminates=value)
            if function == "defer"
            else record(kernel, claimed, "init", open_as={"step_id": "init", "tool": "init"}, terminates=value)
        )
    assert await kernel.everything() == before
