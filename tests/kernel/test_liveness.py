"""liveness: stuck work is reported, each kind after its own bound; a healthy project has none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.kernel.filled import fill
from tests.kernel.kit import Kernel, draft
from tests.kernel.waits import activated, child, command, defer, halting, suspended


async def found(kernel: Kernel) -> list[tuple[str, str]]:
    """The short names of the findings, and their subjects."""
    findings = [(each["check"].split()[0], each["subject"]) for each in await kernel.call("liveness")]
    return [(check, "a callback" if subject.startswith("callback_") else subject) for check, subject in findings]


async def dead_worker(kernel: Kernel) -> None:
    await kernel.running()


async def nobody_claims(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})


async def nobody_claims_again(kernel: Kernel) -> None:
    await defer(kernel, await kernel.running(), 30)


async def silent_tool(kernel: Kernel) -> None:
    await suspended(kernel, command("c1", timeout=30))


async def broken_chain(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await kernel.harm(
        "update agent_state_head set status = 'idle', active_agent_turn_id = null where project_id = $1",
        "update agent_turns set state = 'queued' where project_id = $1",
    )
    kernel.is_corrupted = True


async def no_end(kernel: Kernel) -> None:
    await suspended(kernel, command("c1", timeout=None), limits={"ttl_seconds": 30})


async def stop_ignored(kernel: Kernel) -> None:
    await kernel.renew(await kernel.running(), lease=3600)
    await kernel.stop("turn_a", "graceful", grace_seconds=30)


async def order_ignored(kernel: Kernel) -> None:
    await suspended(kernel, command("c1", timeout=None))
    await kernel.stop("run_a")


async def report_ignored(kernel: Kernel) -> None:
    await suspended(kernel, child("c1", "critic", "turn_c"), signals=activated("critic"))
    await kernel.finish(await kernel.claim_one())
    await kernel.publish()


async def no_relay(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running(), ends="success")


async def old_pending_reaction(kernel: Kernel) -> None:
    claimed = await suspended(kernel, command("c1", timeout=None))
    await kernel.enqueue("run_a", "critic", "turn_1")
    critic = await kernel.claim_one(lease=3600)
    await kernel.append(critic, draft("note", claimed["activation_id"], is_pending=True))


async def nobody_signs(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {})
    await kernel.enqueue("run_a", "writer", "turn_a", callback_url="https://hooks.example/x")
    await kernel.stop("turn_a")
    await kernel.publish()


async def nobody_halts(kernel: Kernel) -> None:
    await suspended(kernel, halting("c1"))
    await kernel.call("take_commands", ["search"], 1, 0.0)
    await kernel.stop("turn_a")
    await kernel.publish()


# the problem -> after how many seconds it is reported, and the finding
STUCK: dict[str, tuple[Callable[[Kernel], Awaitable[None]], float, tuple[str, str]]] = {
    "L1": (dead_worker, 40, ("L1", "run_a/writer")),
    "L2": (nobody_claims, 60, ("L2", "run_a/writer")),
    "L3": (nobody_claims_again, 90, ("L3", "run_a/writer")),
    "L4": (silent_tool, 40, ("L4", "turn_a c1")),
    "L5": (broken_chain, 10, ("L5", "run_a/writer")),
    "L6": (no_end, 40, ("L6", "turn_a")),
    "L7": (stop_ignored, 40, ("L7", "run_a/writer")),
    "L8 stop": (order_ignored, 10, ("L8", "stop:turn_a")),
    "L8 report": (report_ignored, 10, ("L8", "report:turn_c")),
    "L9": (no_relay, 60, ("L9", "evt:turn_a")),
    "L10": (old_pending_reaction, 60, ("L10", "run_a")),
    "L11": (nobody_signs, 60, ("L11", "a callback")),
    "L12": (nobody_halts, 60, ("L12", "halt:turn_a:c1")),
}


@pytest.mark.proves("K10", "K11", "K19", "K25")
@pytest.mark.parametrize("what", STUCK)
async def test_stuck_work_is_reported_at_its_time_and_not_before(kernel: Kernel, what: str) -> None:
    prepare, seconds, finding = STUCK[what]
    await prepare(kernel)
    kernel.wait(seconds)
    assert await found(kernel) == []
    kernel.wait(0.001)
    assert finding in await found(kernel)


async def test_no_check_of_liveness_is_without_a_test(kernel: Kernel) -> None:
    body = await kernel.connection.fetchval("select prosrc from pg_proc where oid = 'heliograph.liveness'::regproc")
    written = {line.split("'")[1].split()[0] for line in body.splitlines() if "select 'L" in line}
    assert written == {finding[0] for _, _, finding in STUCK.values()}


async def test_busy_project_is_alive_and_the_check_changes_nothing(kernel: Kernel) -> None:
    await fill(kernel)
    before = await kernel.everything()
    assert await found(kernel) == []
    assert await kernel.everything() == before


@pytest.mark.proves("K10", "K11", "K19", "K12")
async def test_sweeps_revive_everything_stuck(kernel: Kernel) -> None:
    await fill(kernel)
    await kernel.stop("run_a")
    kernel.wait(3600)
    assert await found(kernel) != []
    for kind in ("leases", "expired", "waits", "stops", "reports", "queued"):
        await kernel.sweep(kind)
    await kernel.call("sweep_callbacks", 100, 60.0)
    await kernel.publish()
    kernel.wait(11)
    assert {name for name, _ in await found(kernel)} <= {"L10"}  # the reactions are the workers'


async def test_liveness_report_is_limited_to_a_hundred_of_a_kind(kernel: Kernel) -> None:
    await kernel.start("run_a", [f"agent_{n}" for n in range(150)], {f"turn_{n}": f"agent_{n}" for n in range(150)})
    kernel.wait(61)
    assert len(await found(kernel)) == 100
